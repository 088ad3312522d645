//! A database directory and the instances that a test runs over it, each a process of its own without a guard.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::processes::{braid, succeeds};

/// Longer than any of this takes on a loaded machine: only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Site(pub PathBuf);

impl Site {
    pub fn new(name: &str) -> Site {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("hosts-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("directory");
        Site(dir)
    }

    pub fn data(&self) -> String {
        self.0.join("data").to_str().expect("UTF-8").to_string()
    }

    pub fn log(&self, k: u16) -> String {
        std::fs::read_to_string(self.0.join(format!("log-{k}"))).unwrap_or_default()
    }

    /// Starts `braid instance`; `command` is the program on the host where it is to run.
    pub fn spawn(&self, k: u16, mut command: Command, args: &[&str]) -> Instance {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.0.join(format!("log-{k}")))
            .expect("log");
        let child = command
            .args(["instance", "--data", &self.data()])
            .args(["--instance", &k.to_string(), "--buffer-cache", "32MB"])
            .args(["--set", "redo_file_size=32MB"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("braid starts");
        Instance(child)
    }

    pub fn status(&self) -> Vec<serde_json::Value> {
        let output = braid(&["status", "--data", &self.data(), "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        all.as_array().expect("a list").clone()
    }

    pub fn verify(&self) {
        succeeds(&["verify", "--data", &self.data()]);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A process, killed if the test has not ended it.
pub struct Instance(Child);

impl Instance {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, which: &str) {
        let sent = Command::new("kill")
            .args([which, &self.pid().to_string()])
            .status();
        assert!(sent.expect("kill").success());
    }

    /// Waits for its end; whether it was a clean one.
    pub fn ended(mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().expect("wait") {
                return status.success();
            }
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    pub fn kill(self) {
        self.signal("-9");
        assert!(!self.ended());
    }

    pub fn stop(self) {
        self.signal("-INT");
        assert!(self.ended(), "a clean stop");
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended; a stopped one is killed, too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn try_client(host: &str, port: u16) -> Result<postgres::Client, postgres::Error> {
    postgres::Config::new()
        .host(host)
        .port(port)
        .user("tester")
        .dbname("braid")
        .connect_timeout(Duration::from_secs(5))
        .connect(postgres::NoTls)
}

/// A session, as soon as there can be one.
pub fn client(site: &Site, k: u16, host: &str, port: u16) -> postgres::Client {
    until(
        || try_client(host, port),
        |e| format!("instance {k}: {e}\n{}", site.log(k)),
    )
}

/// Asks until there is an answer.
pub fn until<T, E>(ask: impl Fn() -> Result<T, E>, said: impl Fn(E) -> String) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(e) => assert!(Instant::now() < deadline, "{}", said(e)),
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Waits for a condition.
pub fn until_so(what: &str, f: impl Fn() -> bool) {
    until(|| f().then_some(()).ok_or(()), |()| what.to_string());
}

pub fn number(client: &mut postgres::Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).expect(sql).get(0)
}
