//! One instance without a guard.

use super::{program, said, status};
use crate::ports::free_port;
use crate::scratch::Scratch;
use postgres::{Client, Config, NoTls};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A start takes no longer, even on a loaded machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A `braid instance` process over a directory of its own. Dropping it kills the process; the
/// directory stays if the test has failed.
pub struct Instance {
    scratch: Scratch,
    pub port: u16,
    args: Vec<String>,
    process: Option<Child>,
}

impl Instance {
    /// Starts an instance on a new database.
    pub fn start(name: &str) -> Instance {
        Instance::start_with(name, &[])
    }

    /// Like `start`, with more options.
    pub fn start_with(name: &str, args: &[&str]) -> Instance {
        let mut instance = Instance::prepare(name, args);
        instance.restart();
        instance
    }

    /// An instance that is not started: for tests that do something with its directory first.
    pub fn prepare(name: &str, args: &[&str]) -> Instance {
        Instance {
            scratch: Scratch::new(name),
            port: free_port(),
            args: args.iter().map(|a| a.to_string()).collect(),
            process: None,
        }
    }

    pub fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Starts the process, which does not run, and returns at once.
    #[track_caller]
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.scratch.join("log"))
            .expect("log");
        let child = Command::new(program())
            .arg("instance")
            .args(["--data".as_ref(), self.data().as_os_str()])
            .args(["--port", &self.port.to_string(), "--buffer-cache", "64MB"])
            .args(["--set", super::SUPERUSER])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("braid starts");
        self.process = Some(child);
    }

    /// Starts the process, which does not run, and returns once it accepts a client.
    #[track_caller]
    pub fn restart(&mut self) {
        self.spawn();
        let started = Instant::now();
        while let Err(e) = self.try_client() {
            let ended = self.process.as_mut().expect("it runs").try_wait();
            let ended = ended.expect("it is our child");
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

    /// What the process has printed, in all its lives.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }

    /// Where clients find the instance. They are its superuser, unless they say otherwise.
    pub fn config(&self) -> Config {
        super::config(self.port)
    }

    pub fn try_client(&self) -> Result<Client, postgres::Error> {
        self.config().connect(NoTls)
    }

    /// A client of another user, who must be let in without a password.
    #[track_caller]
    pub fn client_as(&self, user: &str) -> Client {
        let client = self.config().user(user).connect(NoTls);
        client.unwrap_or_else(|e| panic!("cannot connect as {user}: {e}"))
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        self.try_client()
            .unwrap_or_else(|e| panic!("cannot connect: {e}; the instance's log:\n{}", self.log()))
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let mut child = self.process.take().expect("it runs");
        child.wait().expect("reaped")
    }

    /// Ends the process as `kill -9` does.
    pub fn kill(&mut self) {
        let mut child = self.process.take().expect("it runs");
        child.kill().expect("kill -9");
        child.wait().expect("reaped");
    }

    /// Ends the process as Ctrl-C does; it must end well.
    #[track_caller]
    pub fn stop(&mut self) {
        let mut child = self.process.take().expect("it runs");
        super::signal("-INT", child.id().into());
        let status = child.wait().expect("reaped");
        assert!(
            status.success(),
            "braid ended with {status}; its log:\n{}",
            self.log()
        );
    }

    /// What `braid status --json` says of the instance.
    pub fn status(&self) -> serde_json::Value {
        status(&self.scratch.text("data")).swap_remove(0)
    }

    pub fn verify_output(&self) -> Output {
        let mut command = Command::new(program());
        command.arg("verify").arg("--data").arg(self.data());
        command.output().expect("braid verify")
    }

    /// `braid verify` must find nothing. The instance is stopped.
    #[track_caller]
    pub fn verify(&self) {
        let out = self.verify_output();
        assert!(
            out.status.success(),
            "braid verify: {}\n{}",
            out.status,
            said(&out)
        );
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
