//! A database directory, and the instances that a test runs over it. Each is a process of its own,
//! without a guard.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::processes::{SUPERUSER, signal, status, succeeds};
use testkit::scratch::Scratch;
use testkit::waiting;

pub struct Site {
    pub dir: Scratch,
}

impl Site {
    pub fn new(name: &str) -> Site {
        Site {
            dir: Scratch::new(&format!("hosts-{name}")),
        }
    }

    pub fn data(&self) -> String {
        self.dir.text("data")
    }

    pub fn log(&self, k: u16) -> String {
        std::fs::read_to_string(self.dir.join(format!("log-{k}"))).unwrap_or_default()
    }

    /// Starts `braid instance`. `command` is the program on the host where it is to run.
    pub fn spawn(&self, k: u16, mut command: Command, args: &[&str]) -> Instance {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("log-{k}")))
            .expect("log");
        let child = command
            .args(["instance", "--data", &self.data()])
            .args(["--instance", &k.to_string(), "--buffer-cache", "32MB"])
            .args(["--set", "redo_file_size=32MB", "--set", SUPERUSER])
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("braid starts");
        Instance(child)
    }

    /// Makes the database, and gives its superuser the password by which clients of other hosts are
    /// let in. That takes an instance that listens on loopback.
    pub fn set_password(&self) {
        let (data, port) = (self.data(), testkit::ports::free_port());
        let port_text = port.to_string();
        let mut args = vec!["up", "--detach", "--data", &data, "--port", &port_text];
        args.extend(["--set", "redo_file_size=32MB", "--set", SUPERUSER]);
        succeeds(&args);
        testkit::processes::client(port)
            .batch_execute(&format!("alter role tester password '{PASSWORD}'"))
            .expect("a password");
        succeeds(&["down", "--data", &data]);
    }

    pub fn status(&self) -> Vec<serde_json::Value> {
        status(&self.data())
    }

    pub fn verify(&self) {
        succeeds(&["verify", "--data", &self.data()]);
    }
}

/// A process. It is killed if the test has not ended it.
pub struct Instance(Child);

impl Instance {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, which: &str) {
        signal(which, self.pid().into());
    }

    /// Waits for the end of the process. True if it was a clean one.
    pub fn ended(mut self) -> bool {
        let status = waiting::answer(
            || self.0.try_wait().expect("it is our child").ok_or(()),
            |()| "the instance does not end".to_string(),
        );
        status.success()
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
        // The process may have ended. A stopped one is killed, too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PASSWORD: &str = "of the hosts";

/// A client with a password, through TLS: OpenSSL's client carries its bytes.
pub fn try_client(host: &str, port: u16) -> Result<postgres::Client, postgres::Error> {
    let carrier = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = carrier.local_addr().expect("its address").port();
    let target = format!("{host}:{port}");
    let carrying = std::thread::spawn(move || {
        let (client, _) = carrier.accept().expect("a client");
        carry(client, &target)
    });
    let client = postgres::Config::new()
        .host("127.0.0.1")
        .port(own)
        .user("tester")
        .password(PASSWORD)
        .dbname("braid")
        .connect_timeout(Duration::from_secs(5))
        .connect(postgres::NoTls);
    let mut openssl = carrying.join().expect("carried");
    // It ends with the connection.
    std::thread::spawn(move || openssl.wait());
    client
}

/// A process that carries the bytes of the client to the target, encrypted.
fn carry(client: TcpStream, target: &str) -> Child {
    let end = || Stdio::from(OwnedFd::from(client.try_clone().expect("a socket")));
    Command::new("openssl")
        .args([
            "s_client",
            "-quiet",
            "-starttls",
            "postgres",
            "-connect",
            target,
        ])
        .stdin(end())
        .stdout(end())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs")
}

/// Opens a session as soon as there can be one.
pub fn client(site: &Site, k: u16, host: &str, port: u16) -> postgres::Client {
    waiting::answer(
        || try_client(host, port),
        |e| format!("instance {k}: {e}\n{}", site.log(k)),
    )
}

pub fn number(client: &mut postgres::Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).expect(sql).get(0)
}
