//! The outlet of a process: the place where people read its reports and its log. That is the
//! terminal, the process that has started this one, or nothing once this process has left the
//! terminal.
//!
//! **Invariants.**
//! - The pipe to the parent is close-on-exec, and so belongs to this process alone. Its end is the
//!   end of the process, whatever commands the process has started.
//! - A write waits for no parent that does not read, so a guard that hangs does not make its
//!   instances hang. The exception is a report that the parent waits for: that waits for room.

use std::io;
use std::sync::{PoisonError, RwLock};

use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::report::{Event, Origin, Report};

enum Outlet {
    /// Reports go to standard output, failures and log lines to standard error.
    Terminal,
    /// The write end of the pipe that was this process's standard output.
    Parent(OwnedFd),
    Nobody,
}

/// The present outlet. It changes twice in the life of a process at most, and is read for each
/// line.
static OUTLET: RwLock<Outlet> = RwLock::new(Outlet::Terminal);

fn set(outlet: Outlet) {
    *OUTLET.write().unwrap_or_else(PoisonError::into_inner) = outlet;
}

/// Takes standard output for reports; it must be a pipe to the parent. Anything else that this
/// process or its children write there is lost.
pub fn report_to_parent() -> io::Result<()> {
    let pipe = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
    let flags = rustix::fs::fcntl_getfl(&pipe)?;
    rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
    rustix::stdio::dup2_stdout(null()?)?;
    set(Outlet::Parent(pipe));
    Ok(())
}

/// Hangs up on the terminal or the parent. What is still written to standard error is lost, unless
/// the log has taken it.
pub fn leave(has_log_taken_stderr: bool) -> io::Result<()> {
    if !has_log_taken_stderr {
        rustix::stdio::dup2_stderr(null()?)?;
    }
    set(Outlet::Nobody);
    Ok(())
}

fn null() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/null", flags, Mode::empty())?)
}

/// Tells people what has happened.
pub fn tell(report: &Report) {
    match &*OUTLET.read().unwrap_or_else(PoisonError::into_inner) {
        Outlet::Terminal => show(report),
        Outlet::Parent(pipe) => send(pipe, report),
        Outlet::Nobody => {}
    }
}

/// Writes a line of the log, with its newline.
pub fn log_line(from: Origin, line: &str) {
    let outlet = OUTLET.read().unwrap_or_else(PoisonError::into_inner);
    match &*outlet {
        Outlet::Terminal => show_log_line(line),
        Outlet::Parent(pipe) => {
            let line = line.trim_end_matches('\n').to_string();
            let event = Event::Logged { line };
            send(pipe, &Report { from, event });
        }
        Outlet::Nobody => {}
    }
}

/// Writes a report on this process's terminal.
pub fn show(report: &Report) {
    if let Event::Logged { line } = &report.event {
        return show_log_line(&format!("{line}\n"));
    }
    for line in report.lines() {
        match report.event {
            Event::Failed { .. } => complain!("{line}"),
            _ => say!("{line}"),
        }
    }
}

/// Writes a log line in one piece, so that lines of several processes do not mix.
fn show_log_line(line: &str) {
    use std::io::Write as _;
    // If nobody reads standard error, nobody can be told so.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn send(pipe: &OwnedFd, report: &Report) {
    let line = report.encode();
    loop {
        match rustix::io::write(pipe, &line) {
            Err(Errno::AGAIN) if report.event.is_waited_for() => {
                let mut room = [PollFd::new(pipe, PollFlags::OUT)];
                // The outcome of the poll does not matter: the next write tells whether there is
                // room.
                let _ = rustix::event::poll(&mut room, None);
            }
            Err(Errno::INTR) => {}
            // The report is written as a whole. Or the pipe is full of lines that the parent does
            // not read, or the parent has gone: then nobody is there to be told.
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn pipe() -> (std::io::PipeReader, OwnedFd) {
        let (reader, writer) = std::io::pipe().unwrap();
        let writer = OwnedFd::from(writer);
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        (reader, writer)
    }

    fn logged(n: usize) -> Report {
        Report {
            from: Origin::Instance(1),
            event: Event::Logged {
                line: format!("{n:0>100}"),
            },
        }
    }

    /// Lines that find no room are lost, and the others are whole. A report that is waited for
    /// comes as soon as the parent reads.
    #[test]
    fn a_parent_that_does_not_read_costs_lines_and_no_wait() {
        let (mut reader, writer) = pipe();
        let sent = 5000;
        std::thread::scope(|s| {
            for thread in 0..2 {
                let writer = &writer;
                s.spawn(move || (0..sent).for_each(|n| send(writer, &logged(2 * n + thread))));
            }
        });
        let open = Report {
            from: Origin::Instance(1),
            event: Event::Open {
                address: "127.0.0.1:5501".parse().unwrap(),
                scn: 1,
                elapsed_ms: 1,
            },
        };
        let waited_for = open.clone();
        let waiting = std::thread::spawn(move || send(&writer, &waited_for));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        waiting.join().unwrap();
        let reports: Vec<Report> = text.lines().map(|l| Report::decode(l).unwrap()).collect();
        let (last, lines) = reports.split_last().unwrap();
        assert_eq!(*last, open);
        assert!(
            !lines.is_empty() && lines.len() < 2 * sent,
            "{}",
            lines.len()
        );
    }

    #[test]
    fn a_parent_that_has_gone_is_no_error() {
        let (reader, writer) = pipe();
        drop(reader);
        send(&writer, &logged(1));
    }
}
