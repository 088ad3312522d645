//! Real `braid` processes for tests: started on a free port over a directory of their own, killed, started again.
#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "../ports/mod.rs"]
mod ports;

use ports::free_port;
use postgres::{Client, Config, NoTls};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(60);

/// One instance over a directory under cargo's target directory. Killed when dropped; the directory stays if the test failed.
pub struct Instance {
    dir: PathBuf,
    pub port: u16,
    args: Vec<String>,
    process: Option<Child>,
}

impl Instance {
    pub fn start(name: &str) -> Instance {
        Instance::start_with(name, &[])
    }

    pub fn start_with(name: &str, args: &[&str]) -> Instance {
        let mut instance = Instance::prepare(name, args);
        instance.restart();
        instance
    }

    /// An instance that is not started: for tests that do something with its directory first.
    pub fn prepare(name: &str, args: &[&str]) -> Instance {
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("directory for the test");
        let args = args.iter().map(|a| a.to_string()).collect();
        Instance {
            dir,
            port: free_port(),
            args,
            process: None,
        }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("running").id()
    }

    /// Starts the process and returns at once.
    pub fn spawn(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))
            .expect("log");
        let child = Command::new(env!("CARGO_BIN_EXE_braid"))
            .arg("instance")
            .args(["--data".as_ref(), self.data().as_os_str()])
            .args(["--port", &self.port.to_string(), "--buffer-cache", "64MB"])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("braid starts");
        self.process = Some(child);
    }

    /// Starts the process and returns once it answers a query.
    pub fn restart(&mut self) {
        self.spawn();
        let started = Instant::now();
        while let Err(e) = self.try_client() {
            let ended = self
                .process
                .as_mut()
                .expect("running")
                .try_wait()
                .expect("wait");
            assert!(
                ended.is_none(),
                "braid ended with {ended:?}; its log:\n{}",
                self.log()
            );
            assert!(
                started.elapsed() < START_LIMIT,
                "no answer after {START_LIMIT:?}: {e}; its log:\n{}",
                self.log()
            );
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub fn try_client(&self) -> Result<Client, postgres::Error> {
        Config::new()
            .host("127.0.0.1")
            .port(self.port)
            .user("braid")
            .dbname("braid")
            .connect(NoTls)
    }

    pub fn client(&self) -> Client {
        self.try_client()
            .unwrap_or_else(|e| panic!("cannot connect: {e}; the instance's log:\n{}", self.log()))
    }

    pub fn kill(&mut self) {
        let mut child = self.process.take().expect("running");
        child.kill().expect("kill -9");
        child.wait().expect("reaped");
    }

    /// A clean stop, as Ctrl-C does it.
    pub fn stop(&mut self) {
        let mut child = self.process.take().expect("running");
        let status = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .expect("kill");
        assert!(status.success());
        let status = child.wait().expect("reaped");
        assert!(
            status.success(),
            "braid ended with {status}; its log:\n{}",
            self.log()
        );
    }

    /// What `braid status --json` says of the instance.
    pub fn status(&self) -> serde_json::Value {
        let out = Command::new(env!("CARGO_BIN_EXE_braid"))
            .args(["status", "--json", "--data"])
            .arg(self.data())
            .output()
            .expect("braid status");
        let all: serde_json::Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stdout)));
        all[0].clone()
    }

    pub fn verify_output(&self) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_braid"))
            .arg("verify")
            .arg("--data")
            .arg(self.data())
            .output()
            .expect("braid verify")
    }

    /// `braid verify` must find nothing. The instance is stopped.
    pub fn verify(&self) {
        let out = self.verify_output();
        assert!(
            out.status.success(),
            "braid verify: {}\n{}{}",
            out.status,
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// The seed of this run: `BRAID_SEED`, or the clock.
pub fn seed() -> u64 {
    match std::env::var("BRAID_SEED") {
        Ok(v) => v.parse().expect("BRAID_SEED is a number"),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_nanos() as u64,
    }
}
