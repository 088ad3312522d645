//! What a machine does to a database: slow disks, programs that take the processors, long lines.
//! Where the machine does not let a test do that, the test says so.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
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

/// A network of its own, whose kernel has other limits. It goes with this.
pub struct OwnNetwork(String);

impl OwnNetwork {
    /// The thread that calls this is in the network from then on, and so are the threads and
    /// processes that it starts. `settings` are those of `sysctl`. None where there can be no such
    /// network.
    pub fn enter(settings: &[&str]) -> Option<OwnNetwork> {
        let own = OwnNetwork(format!("braid-causes-{}", std::process::id()));
        let name = own.0.as_str();
        let ip = |args: &[&str]| -> Result<(), String> {
            let done = Command::new("ip").args(args).output();
            let done = done.map_err(|e| format!("ip: {e}"))?;
            let said = String::from_utf8_lossy(&done.stderr);
            match done.status.success() {
                true => Ok(()),
                false => Err(format!("ip {}: {}", args.join(" "), said.trim())),
            }
        };
        let enter = || -> Result<(), String> {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            for setting in settings {
                ip(&["netns", "exec", name, "sysctl", "-q", "-w", setting])?;
            }
            let file = File::open(format!("/run/netns/{name}")).map_err(|e| e.to_string())?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| e.to_string())
        };
        match enter() {
            Ok(()) => Some(own),
            Err(why) => {
                println!("not tried: no network of its own can be had ({why})");
                None
            }
        }
    }
}

impl Drop for OwnNetwork {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}
