//! What a machine does to a database: slow disks, programs that take the processors, long lines.
//! Where the machine does not let a test do that, the test says so.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::waiting;

/// Writes of a process to some files take longer, as long as this lives: `strace` delays them.
pub struct SlowWrites(Child);

impl SlowWrites {
    /// Of the files of a directory whose names begin so, by so many microseconds. None where a
    /// process cannot be traced.
    pub fn of(pid: u64, directory: &Path, begin: &str, micros: &str) -> Option<SlowWrites> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64"]);
        strace.args(["-e", &format!("inject=pwrite64:delay_enter={micros}")]);
        for entry in std::fs::read_dir(directory)
            .expect("the log's directory")
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with(begin) {
                strace.arg("-P").arg(entry.path());
            }
        }
        strace.args(["-p", &pid.to_string()]);
        let started = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(mut strace) = started else {
            println!("not tried: there is no strace");
            return None;
        };
        let is_traced = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let by = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
            by.is_some_and(|by| by.trim() != "0")
        };
        let mut ended = false;
        waiting::until("strace is there, or has ended", || {
            ended = strace.try_wait().expect("it is our child").is_some();
            ended || is_traced()
        });
        if ended {
            println!("not tried: processes cannot be traced here");
            return None;
        }
        Some(SlowWrites(strace))
    }
}

impl Drop for SlowWrites {
    fn drop(&mut self) {
        testkit::processes::signal("-INT", self.0.id().into());
        let _ = self.0.wait();
    }
}

/// Programs that do nothing but compute.
pub struct Hogs(Vec<Child>);

impl Hogs {
    /// So many on processor 0, with the threads pushed behind them.
    pub fn beside(threads: &[String], hogs: usize) -> Hogs {
        for thread in threads {
            let done = Command::new("renice")
                .args(["-n", "19", "-p", thread])
                .output();
            assert!(
                done.expect("renice").status.success(),
                "a thread may be made nicer"
            );
        }
        let spawn = |_| {
            let mut hog = Command::new("taskset");
            hog.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
            hog.spawn().expect("a hog")
        };
        Hogs((0..hogs).map(spawn).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// A line on which everything takes longer.
pub struct Line {
    /// Where clients connect to.
    pub port: u16,
}

impl Line {
    /// To a port of this machine. The line's threads end with its connections.
    pub fn to(port: u16, delay: Duration) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("its address").port();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", port)).expect("the instance");
                let pair = || {
                    (
                        near.try_clone().expect("a socket"),
                        far.try_clone().expect("a socket"),
                    )
                };
                let ((a, b), (c, d)) = (pair(), pair());
                std::thread::spawn(move || carry(a, b, delay));
                std::thread::spawn(move || carry(d, c, delay));
            }
        });
        Line { port: own }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let _ = to.set_nodelay(true);
    let mut bytes = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        std::thread::park_timeout(delay);
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
