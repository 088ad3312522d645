//! A database with several instances, their guard, and the proxies between them.

use crate::proxy::{Fault, Proxy};
use postgres::{Client, NoTls, SimpleQueryMessage};
use seam::Rng;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use testkit::ports::free_ports;
use testkit::processes::braid;
use testkit::scratch::Scratch;
use testkit::seeds;

/// Longer than anything here takes on a loaded machine. Only a failing test waits for so long.
/// `BRAID_HISTORY_PATIENCE` sets another number of seconds, for a machine that has little time for
/// this.
pub static PATIENCE: LazyLock<Duration> =
    LazyLock::new(|| Duration::from_secs(seeds::number("BRAID_HISTORY_PATIENCE", 180)));
/// How long a member may be silent before its end is ordered.
pub const MISSCOUNT: Duration = Duration::from_secs(6);

pub struct Cluster {
    dir: Scratch,
    pub instances: u16,
    port: u16,
    /// Arguments of the command that starts all instances.
    args: Vec<String>,
    /// The proxy through which the higher instances reach each instance, unless they connect
    /// directly.
    proxies: Vec<Proxy>,
    /// Whether masters follow users quickly, and there are users to be followed.
    pub remasters: bool,
}

impl Cluster {
    /// Starts a cluster. The seed decides about small redo files, which make checkpoints press;
    /// about one lane or three, which spread the blocks otherwise; and about other sockets for
    /// members that meet directly.
    pub fn up(dir: Scratch, instances: u16, rng: &mut Rng) -> Cluster {
        let (port, inner) = (free_ports(instances), free_ports(instances));
        let directly = rng.below(4) == 0;
        let of_proxies = if directly { 0 } else { instances };
        let proxies: Vec<Proxy> = (0..of_proxies).map(|k| Proxy::to(inner + k)).collect();
        let peers: Vec<String> = (1..)
            .zip(&proxies)
            .map(|(k, p)| format!("{k}=127.0.0.1:{}", p.port))
            .collect();
        let mut c = Cluster {
            dir,
            instances,
            port,
            args: Vec::new(),
            proxies,
            remasters: rng.below(3) == 0,
        };
        let settings = [
            format!("redo_file_size={}MB", [2, 8, 32][rng.below(3) as usize]),
            "max_sessions=60".to_string(),
            format!("gcs_server_processes={}", 1 + rng.below(3)),
            format!("css_misscount={}", MISSCOUNT.as_secs()),
            format!(
                "background_priority={}",
                ["ordinary", "slice"][rng.below(2) as usize]
            ),
        ];
        let policy = match c.remasters {
            true => &[
                "gc_policy_time=1",
                "gc_policy_minimum=10",
                "gc_affinity_ratio=51",
            ][..],
            false => &[],
        };
        let policy = policy.iter().map(|p| p.to_string());
        let settings: Vec<String> = settings.into_iter().chain(policy).collect();
        println!("{settings:?}, proxies: {}", !directly);
        let options = [
            ("--data", c.data()),
            ("--instances", instances.to_string()),
            ("--port", port.to_string()),
            ("--interconnect-port", inner.to_string()),
            ("--peers", peers.join(",")),
            ("--buffer-cache", "16MB".to_string()),
            ("--set", testkit::processes::SUPERUSER.to_string()),
        ];
        let settings = settings.into_iter().map(|s| ("--set", s));
        c.args = ["up", "--detach"].map(str::to_string).into();
        for (name, value) in options.into_iter().chain(settings) {
            c.args.extend([name.to_string(), value]);
        }
        assert!(c.start_all(), "it does not start: {}", c.log());
        c
    }

    /// Starts all instances. False if that cannot be now, because some process runs.
    fn start_all(&self) -> bool {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        braid(&args).status.success()
    }

    /// Starts an instance that has no process. A guard that saw its last instance die too often has
    /// ended itself. Then a new guard starts all.
    pub fn start(&self, k: u16) {
        match self.guard() {
            // The command is refused if the instance is on its way.
            Some(_) => drop(braid(&["start", &k.to_string(), "--data", &self.data()])),
            None => drop(self.start_all()),
        }
    }

    pub fn data(&self) -> String {
        self.dir.text("data")
    }

    pub fn try_connect(&self, k: u16) -> Result<Client, postgres::Error> {
        let port = self.port + k - 1;
        postgres::Config::new()
            .host("127.0.0.1")
            .port(port)
            .user("tester")
            .dbname("braid")
            .connect_timeout(Duration::from_secs(10))
            .connect(NoTls)
    }

    pub fn connect(&self, k: u16) -> Client {
        let give_up = Instant::now() + *PATIENCE;
        loop {
            match self.try_connect(k) {
                Ok(client) => return client,
                Err(e) => assert!(Instant::now() < give_up, "instance {k}: {e}"),
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// The process of an instance, if it has one, and whether the instance is open.
    pub fn process(&self, k: u16) -> Option<(u64, bool)> {
        let output = braid(&["status", "--data", &self.data(), "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let s = all.as_array()?.iter().find(|s| s["instance"] == k)?;
        match s["state"].as_str()? {
            state @ ("open" | "starting" | "stopping") => {
                Some((s["pid"].as_u64()?, state == "open"))
            }
            _ => None,
        }
    }

    /// Sends a signal to the process of an instance, in whatever state it is. False if there is no
    /// process.
    pub fn signal(&self, which: &str, k: u16) -> bool {
        let Some((pid, _)) = self.process(k) else {
            return false;
        };
        let sent = Command::new("kill")
            .args([which, &pid.to_string()])
            .output();
        // The process may have ended by itself meanwhile.
        sent.expect("kill runs").status.success()
    }

    /// Whether there is anything between the instances that can be at fault.
    pub fn has_links(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Sets a fault between two instances.
    pub fn set_fault(&self, a: u16, b: u16, fault: Option<Fault>) {
        self.proxies[usize::from(a.min(b)) - 1].set(a.max(b), fault);
    }

    pub fn log(&self) -> String {
        testkit::processes::logs(&self.dir.join("data"))
    }

    /// What the sessions of each instance are doing, for a message about a run that stands still.
    pub fn sessions(&self) -> String {
        let mut said = String::new();
        for k in 1..=self.instances {
            said += &format!("instance {k}, {:?}:\n", self.process(k));
            let rows = self.try_connect(k).and_then(|mut client| {
                client.simple_query("set statement_timeout = '10s'")?;
                client.simple_query("select * from v$session")
            });
            match rows {
                Ok(rows) => {
                    for row in &rows {
                        if let SimpleQueryMessage::Row(row) = row {
                            let fields = (0..row.len()).map(|n| row.get(n).unwrap_or("-"));
                            said += &format!("  {}\n", fields.collect::<Vec<_>>().join(" | "));
                        }
                    }
                }
                Err(e) => said += &format!("  {e}\n"),
            }
        }
        said
    }

    /// Moves of masters, except those counted before the last restart of their instances.
    pub fn remastered(&self) -> String {
        let sql = "select count(*) from gv$policy_history where policy_event = 'complete_affinity'";
        let row = self.connect(1).query_one(sql, &[]).expect("a count");
        row.get::<_, i64>(0).to_string()
    }

    /// The process of the guard, if it runs.
    pub fn guard(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.dir.join("data/guard.json")).ok()?;
        let guard: serde_json::Value = serde_json::from_str(&text).ok()?;
        let pid = guard["pid"].as_u64()?;
        // The number may be another process's by now.
        let of_pid = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        of_pid.contains(&self.data()).then_some(pid)
    }

    /// Kills the guard, and with it its instances. What is on disk stays as it is.
    pub fn kill(&self) {
        if let Some(pid) = self.guard() {
            let killed = Command::new("kill").args(["-9", &pid.to_string()]).output();
            killed.expect("kill runs");
        }
    }
}
