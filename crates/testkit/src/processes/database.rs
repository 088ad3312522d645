//! A database whose instances one guard runs.

use super::{braid, client, signal, status, succeeds, try_client};
use crate::ports::free_ports;
use crate::scratch::Scratch;
use crate::waiting;
use std::path::Path;
use std::process::Output;

/// A database in a directory of its own, and the ports of its instances. Dropping it ends the guard
/// and the instances with `braid down`; the directory stays if the test has failed.
pub struct Database {
    scratch: Scratch,
    first_port: u16,
    instances: u16,
}

impl Database {
    /// A directory and ports for so many instances. Nothing is started.
    pub fn new(name: &str, instances: u16) -> Database {
        Database {
            scratch: Scratch::new(name),
            first_port: free_ports(instances),
            instances,
        }
    }

    /// Like `new`, but the guard and all instances are started with these options of `braid up`.
    #[track_caller]
    pub fn up(name: &str, instances: u16, options: &[&str]) -> Database {
        let database = Database::new(name, instances);
        let output = database.start(options);
        assert!(output.status.success(), "{}", super::said(&output));
        database
    }

    /// Runs `braid up --detach` for all instances with these options.
    pub fn start(&self, options: &[&str]) -> Output {
        let (data, port) = (self.data(), self.first_port.to_string());
        let instances = self.instances.to_string();
        let mut args = vec!["up", "--detach", "--data", &data, "--port", &port];
        args.extend(["--instances", &instances, "--set", super::SUPERUSER]);
        args.extend(options);
        braid(&args)
    }

    /// The directory that holds the data directory.
    pub fn dir(&self) -> &Path {
        &self.scratch
    }

    /// The data directory, for `--data`. `braid up` creates it.
    pub fn data(&self) -> String {
        self.scratch.text("data")
    }

    pub fn instances(&self) -> u16 {
        self.instances
    }

    /// The port of an instance; the first instance is 1.
    pub fn port(&self, instance: u16) -> u16 {
        self.first_port + instance - 1
    }

    pub fn try_client(&self, instance: u16) -> Result<postgres::Client, postgres::Error> {
        try_client(self.port(instance))
    }

    /// A connection to an instance that is open.
    #[track_caller]
    pub fn client(&self, instance: u16) -> postgres::Client {
        client(self.port(instance))
    }

    /// A connection to an instance as soon as it is open, again after a crash for example.
    #[track_caller]
    pub fn client_when_open(&self, instance: u16) -> postgres::Client {
        waiting::answer(
            || self.try_client(instance),
            |e| format!("instance {instance}: {e}\n{}", self.log()),
        )
    }

    /// What `braid status` says of each instance.
    pub fn status(&self) -> Vec<serde_json::Value> {
        status(&self.data())
    }

    /// The process of an instance that has one.
    #[track_caller]
    pub fn pid(&self, instance: u16) -> u64 {
        let all = self.status();
        let pid = all[usize::from(instance) - 1]["pid"].as_u64();
        pid.unwrap_or_else(|| panic!("instance {instance} has no process: {all:#?}"))
    }

    /// Sends a signal, such as `-9`, to the process of an instance.
    #[track_caller]
    pub fn signal(&self, instance: u16, which: &str) {
        signal(which, self.pid(instance));
    }

    /// What the guard and the instances have said.
    pub fn log(&self) -> String {
        super::logs(&self.scratch.join("data"))
    }

    /// Stops everything. `braid down` must succeed, and `braid verify` must find nothing wrong.
    #[track_caller]
    pub fn verify(&self) {
        succeeds(&["down", "--data", &self.data()]);
        succeeds(&["verify", "--data", &self.data()]);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // It says that nothing runs if the test has stopped everything.
        braid(&["down", "--data", &self.data()]);
    }
}
