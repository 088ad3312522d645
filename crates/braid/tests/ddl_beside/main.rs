//! Statements beside definitions that others change: each is analysed under its tables' locks, so
//! that it fails only where PostgreSQL's would.
//!
//! The tests run on two instances. With `BRAID_TEST_PORTS=PORT,PORT` they run on what listens there
//! instead, for example twice the port of a PostgreSQL 15 that has a user `tester` and a database
//! `braid`: its answers are the definition of right.

mod client;
mod load;
mod online;
mod prepared;
mod waits;

use testkit::processes::Database;

/// Two instances, or a server that was started by hand.
pub struct Pair {
    ports: [u16; 2],
    database: Option<Database>,
}

impl Pair {
    pub fn up(name: &str) -> Pair {
        if let Ok(ports) = std::env::var("BRAID_TEST_PORTS") {
            let mut ports = ports.split(',').map(|p| p.parse().expect("a port"));
            let mut next = || ports.next().expect("two ports");
            return Pair {
                ports: [next(), next()],
                database: None,
            };
        }
        let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
        let database = Database::up(&format!("ddl-beside-{name}"), 2, &small);
        Pair {
            ports: [database.port(1), database.port(2)],
            database: Some(database),
        }
    }

    /// Whether the two instances are Braid's.
    pub fn is_braid(&self) -> bool {
        self.database.is_some()
    }

    pub fn connect(&self, instance: usize) -> client::Client {
        client::Client::connect(self.ports[instance - 1])
    }

    /// Waits until a session of either instance waits for a lock: the one that runs `what`.
    pub fn until_one_waits(&self, client: &mut client::Client, what: &str) {
        let sql = match self.is_braid() {
            true => "select count(*) > 0 from gv$lock where request > 0",
            false => "select count(*) > 0 from pg_locks where not granted",
        };
        testkit::waiting::until(&format!("{what} waits for a lock"), || {
            client.simple(sql).text() == "t"
        });
    }

    /// Ends an instance as kill -9 does, and waits until it is open again.
    pub fn kill(&self, instance: u16) {
        let database = self.database.as_ref().expect("instances of Braid");
        database.signal(instance, "-9");
        database.client_when_open(instance);
    }

    /// Stops the instances and reads all there is.
    pub fn verify(&self) {
        if let Some(database) = &self.database {
            database.verify();
        }
    }
}
