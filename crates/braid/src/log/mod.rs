//! The log of this process: one line for each event of `tracing`, with time, process, thread and
//! level.
//!
//! ```text
//! 2026-11-25 04:31:08.123 UTC [1] rcfg WARN  instance 2 has not answered for 3 s
//! ```
//!
//! An event goes to a file in the database directory. It also goes to the outlet, unless people are
//! told of it by a report ([`TOLD`]). Both are written at once and without a buffer of this
//! program. So a process that aborts with the next instruction has said why. Lines that come before
//! the file can be opened are kept for it.
//!
//! **Lock.** `FILE` is held while a line is written to the file. Nothing else is taken under it.

mod rotation;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

use crate::outlet;
use crate::report::{Origin, Report};
use crate::{Failure, report};
use rotation::RotatingFile;

/// Target of events that people are told of by a report.
pub const TOLD: &str = "braid::told";
/// A longer line is cut. Four lines of this length fit into the smallest file.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Bytes of lines that are kept for a file that is not open yet. A start that has come so far logs
/// few lines.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The parameters of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub level: LevelFilter,
    pub limits: Limits,
}

/// The bounds of the log: `files` files of `file_bytes` each, among them the one that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub file_bytes: u64,
    pub files: u32,
}

enum File {
    /// The lines so far, kept for the file.
    Kept(String),
    Open(RotatingFile),
}

static FILE: Mutex<File> = Mutex::new(File::Kept(String::new()));
/// The level of this process's log, once it has begun.
static LEVEL: OnceLock<LevelHandle> = OnceLock::new();

type LevelHandle = reload::Handle<LevelFilter, Registry>;

fn file() -> MutexGuard<'static, File> {
    FILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The log file of a process over this database.
pub fn path(data: &Path, of: Origin) -> PathBuf {
    match of {
        Origin::Instance(k) => data.join(format!("instance-{k}.log")),
        Origin::Guard => data.join("guard.log"),
    }
}

/// Begins the log of this process, once. From here on events and panics are lines.
pub fn start(of: Origin, level: LevelFilter) -> Result<(), Failure> {
    let (subscriber, handle) = subscriber(of, level, Sinks(of));
    tracing::subscriber::set_global_default(subscriber)?;
    LEVEL.get_or_init(|| handle);
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// The subscriber that makes lines of events, and the handle that changes its level.
fn subscriber(
    of: Origin,
    level: LevelFilter,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> (impl Subscriber + Send + Sync, LevelHandle) {
    let (level, handle) = reload::Layer::new(level);
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Format(of))
        .with_writer(writer);
    (Registry::default().with(level).with(lines), handle)
}

/// From here on, this process logs what is as severe as `level`. The line that says so is written
/// at the more talkative of both levels.
pub fn set_level(level: LevelFilter) {
    if let Some(handle) = LEVEL.get() {
        change_level(handle, level);
    }
}

fn change_level(handle: &LevelHandle, level: LevelFilter) {
    let Some(before) = handle.clone_current().filter(|before| *before != level) else {
        return;
    };
    let say = || tracing::info!("log_level is {level}, and was {before}");
    if level < before {
        say();
    }
    if let Err(e) = handle.reload(level) {
        tracing::error!("log_level stays {before}: {e}");
    }
    if level > before {
        say();
    }
}

/// Opens the log file. If `takes_stderr` is set, standard error goes there, too. The runtime itself
/// writes there at an end, for example about a stack that has overflowed, and otherwise nobody
/// would read that.
///
/// A full disk is no error: lines go to the file as soon as there is room.
pub fn open_file(path: &Path, limits: Limits, takes_stderr: bool) -> Result<(), Failure> {
    let mut file = file();
    let File::Kept(kept) = &*file else {
        return Ok(());
    };
    let cannot = |e| {
        let path = path.display();
        Failure(format!(
            "cannot write the log file {path}: {e}\n\
             braid: name a directory that this user may write and that has room with --data"
        ))
    };
    let mut opened = RotatingFile::open(path, limits, takes_stderr).map_err(cannot)?;
    kept.split_inclusive('\n').for_each(|l| opened.write(l));
    *file = File::Open(opened);
    Ok(())
}

/// Whether standard error is the log file.
pub fn has_stderr() -> bool {
    matches!(&*file(), File::Open(file) if file.has_stderr())
}

/// Tells people and the log file what has happened.
pub fn tell(from: Origin, event: report::Event) {
    let report = Report { from, event };
    outlet::tell(&report);
    match &report.event {
        report::Event::Failed { why } => tracing::error!(target: TOLD, "{why}"),
        report::Event::Open { address, .. } => {
            let opened = report.event.sentence();
            tracing::info!(target: TOLD, "the instance {opened}, for clients at {address}");
        }
        event => tracing::info!(target: TOLD, "{}", event.sentence()),
    }
}

/// Logs to the file something that people have been told of.
macro_rules! note {
    ($($what:tt)*) => {
        tracing::info!(target: $crate::log::TOLD, $($what)*)
    };
}
pub(crate) use note;

/// The hook for panics. It replaces `std`'s message on standard error, which perhaps nobody reads.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let what = panic.payload_as_str().unwrap_or("no message");
    let place = panic
        .location()
        .map_or(String::new(), |l| format!(" at {l}"));
    let backtrace = Backtrace::capture();
    let stack = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}"),
        _ => String::new(),
    };
    tracing::error!("the thread panicked{place}: {what}{stack}");
}

/// Makes the line of an event: its message, and then its other fields as `name=value`.
struct Format(Origin);

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        begin(&mut line, self.0, *event.metadata().level())?;
        let mut text = Text(&mut line);
        context.format_fields(Writer::new(&mut text), event)?;
        line.write_char('\n')
    }
}

/// The beginning of a line, up to its message.
fn begin(line: &mut dyn std::fmt::Write, of: Origin, level: Level) -> std::fmt::Result {
    let now = chrono::Utc::now().format("%Y-%m-%d %H:%M:%S%.3f UTC");
    let thread = std::thread::current();
    // The name is one word, so that a line can be split at its blanks.
    let thread = thread.name().unwrap_or("-").replace(' ', "-");
    match of {
        Origin::Instance(k) => write!(line, "{now} [{k}] {thread} {level:<5} "),
        Origin::Guard => write!(line, "{now} [guard] {thread} {level:<5} "),
    }
}

/// Writes the text of an event into a line. Such text may come from clients and files. It can
/// neither look like a line of its own nor control a terminal.
struct Text<'a, W>(&'a mut W);

impl<W: std::fmt::Write> std::fmt::Write for Text<'_, W> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            match c {
                '\n' => self.0.write_str("\n\t")?,
                '\t' => self.0.write_char(c)?,
                c if c.is_control() => write!(self.0, "{}", c.escape_default())?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The places that lines go to.
struct Sinks(Origin);

impl<'a> MakeWriter<'a> for Sinks {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            from: self.0,
            is_told: false,
        }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Line {
        Line {
            from: self.0,
            is_told: event.target() == TOLD,
        }
    }
}

/// Writes one line, as a whole.
struct Line {
    from: Origin,
    /// Whether people know the line from a report.
    is_told: bool,
}

impl std::io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let whole = String::from_utf8_lossy(bytes);
        let line = match whole.len() {
            0..=MAX_LINE_BYTES => whole,
            _ => {
                let end = whole.floor_char_boundary(MAX_LINE_BYTES - 4);
                format!("{}...\n", &whole[..end]).into()
            }
        };
        if !self.is_told {
            outlet::log_line(self.from, &line);
        }
        match &mut *file() {
            File::Open(file) => file.write(&line),
            File::Kept(kept) if kept.len() + line.len() <= MAX_KEPT_BYTES => kept.push_str(&line),
            // A start has said so much before it had a directory: the rest is on the outlet
            // alone.
            File::Kept(_) => {}
        }
        // The file counts what it cannot write.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A subscriber's lines like those of [`start`], for this thread alone.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LevelFilter, of: Origin, f: impl FnOnce()) -> Vec<String> {
        logged_by(level, of, |_| f())
    }

    fn logged_by(level: LevelFilter, of: Origin, f: impl FnOnce(&LevelHandle)) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, handle) = subscriber(of, level, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || f(&handle));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.split_terminator('\n').map(str::to_string).collect()
    }

    #[test]
    fn a_line_has_time_process_thread_level_and_fields() {
        let of_thread = || {
            let thread = std::thread::Builder::new().name("client 4711".into());
            let run = || {
                logged(LevelFilter::INFO, Origin::Instance(3), || {
                    tracing::warn!(blocks = 5, file = "a b", "cannot be read");
                })
            };
            thread.spawn(run).unwrap().join().unwrap()
        };
        let before = chrono::Utc::now();
        let lines = of_thread();
        let (time, rest) = lines[0].split_at("2026-11-25 04:31:08.123".len());
        assert_eq!(
            rest,
            " UTC [3] client-4711 WARN  cannot be read blocks=5 file=\"a b\""
        );
        let time = chrono::NaiveDateTime::parse_from_str(time, "%Y-%m-%d %H:%M:%S%.3f").unwrap();
        let late = time.and_utc() - before;
        assert!((-1..60_000).contains(&late.num_milliseconds()), "{late}");
        let guard = logged(LevelFilter::INFO, Origin::Guard, || tracing::error!("x"));
        assert!(guard[0].contains(" UTC [guard] ") && guard[0].ends_with(" ERROR x"));
    }

    #[test]
    fn a_level_lets_through_what_is_as_severe() {
        let levels = [
            (LevelFilter::ERROR, 1),
            (LevelFilter::WARN, 2),
            (LevelFilter::INFO, 3),
            (LevelFilter::DEBUG, 4),
        ];
        for (level, wanted) in levels {
            let lines = logged(level, Origin::Guard, || {
                tracing::error!("1");
                tracing::warn!("2");
                tracing::info!("3");
                tracing::debug!("4");
            });
            let last = lines.last().unwrap();
            assert_eq!(lines.len(), wanted, "{level}: {lines:?}");
            assert!(last.ends_with(&wanted.to_string()), "{last}");
        }
    }

    #[test]
    fn a_changed_level_holds_from_then_on_and_the_log_says_so() {
        let lines = logged_by(LevelFilter::INFO, Origin::Guard, |level| {
            tracing::debug!("left out");
            change_level(level, LevelFilter::DEBUG);
            tracing::debug!("in detail");
            change_level(level, LevelFilter::DEBUG);
            change_level(level, LevelFilter::ERROR);
            tracing::info!("left out");
            change_level(level, LevelFilter::INFO);
        });
        let messages: Vec<&str> = lines.iter().map(|l| l[l.len() - 9..].trim()).collect();
        assert_eq!(
            messages,
            ["was info", "in detail", "was debug", "was error"]
        );
    }

    /// The text may be a name that a client has chosen.
    #[test]
    fn text_neither_begins_a_line_nor_controls_a_terminal() {
        let name = "x\n2026-01-01 forged\u{1b}[2J\r";
        let lines = logged(LevelFilter::INFO, Origin::Guard, || {
            tracing::info!(name, "{name}");
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with(" INFO  x"), "{}", lines[0]);
        assert!(lines[1].starts_with("\t2026-01-01 forged"), "{}", lines[1]);
        assert!(!lines[1].contains(['\u{1b}', '\r']), "{}", lines[1]);
    }

    #[test]
    fn a_panic_is_a_line_with_its_place_and_message() {
        let lines = logged(LevelFilter::ERROR, Origin::Guard, || {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(log_panic));
            let ended = std::panic::catch_unwind(|| panic!("no {}", "invariant"));
            std::panic::set_hook(hook);
            assert!(ended.is_err());
        });
        let line = &lines[0];
        assert!(
            line.contains(" ERROR the thread panicked at ") && line.contains("log/mod.rs"),
            "{line}"
        );
        assert!(line.ends_with(": no invariant"), "{line}");
    }
}
