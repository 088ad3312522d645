//! Hosts for tests: network namespaces of this machine, joined by a bridge. The bridge's own
//! address is the test's. The hosts share files and processes, and nothing of the network but the
//! bridge.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU16, Ordering};

static NETWORKS: AtomicU16 = AtomicU16::new(0);

pub struct Network {
    /// The name of the network's bridge. All other names begin with it.
    name: String,
    /// The first three bytes of the network's addresses.
    prefix: String,
    hosts: u16,
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

impl Network {
    /// Makes a network of hosts. None where namespaces and virtual interfaces cannot be had, and
    /// the test says so.
    pub fn new(hosts: u16) -> Option<Network> {
        // Tests that run at the same time have different names and addresses.
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let unique = (std::process::id() as u16 % 2000) * 8 + number % 8;
        let network = Network {
            name: format!("bh{unique}"),
            prefix: format!("10.{}.{}", 128 + unique / 250, unique % 250),
            hosts,
        };
        match network.make() {
            Ok(()) => Some(network),
            Err(why) => {
                // This goes past the test harness, which keeps what passing tests print to itself.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: no network of several hosts can be made here ({why})"
                );
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let bridge = &*self.name;
        ip(&["link", "add", bridge, "type", "bridge"])?;
        let own = format!("{}/24", self.address(0));
        ip(&["addr", "add", &own, "dev", bridge])?;
        ip(&["link", "set", bridge, "up"])?;
        for k in 1..=self.hosts {
            let (host, out, inner) = (self.host(k), self.cable(k), format!("{bridge}i{k}"));
            ip(&["netns", "add", &host])?;
            ip(&["link", "add", &out, "type", "veth", "peer", "name", &inner])?;
            ip(&["link", "set", &inner, "netns", &host])?;
            ip(&["link", "set", &out, "master", bridge, "up"])?;
            let address = format!("{}/24", self.address(k));
            ip(&["-n", &host, "addr", "add", &address, "dev", &inner])?;
            ip(&["-n", &host, "link", "set", &inner, "up"])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    /// The address of a host, from 1; that of the test itself is 0.
    pub fn address(&self, k: u16) -> String {
        format!("{}.{}", self.prefix, k + 1)
    }

    fn host(&self, k: u16) -> String {
        format!("{}h{k}", self.name)
    }

    fn cable(&self, k: u16) -> String {
        format!("{}o{k}", self.name)
    }

    /// A command on a host, ready to be given arguments.
    pub fn command(&self, k: u16, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host(k)]).arg(program);
        command
    }

    pub fn run(&self, k: u16, program: &str, args: &[&str]) -> Output {
        let mut command = self.command(k, program);
        command.args(args).output().expect("ip netns exec")
    }

    /// Pulls out a host's cable.
    pub fn cut(&self, k: u16) {
        ip(&["link", "set", &self.cable(k), "down"]).expect("down");
    }

    pub fn heal(&self, k: u16) {
        ip(&["link", "set", &self.cable(k), "up"]).expect("up");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for k in 1..=self.hosts {
            let _ = ip(&["netns", "del", &self.host(k)]);
            let _ = ip(&["link", "del", &self.cable(k)]);
        }
        let _ = ip(&["link", "del", &self.name]);
    }
}
