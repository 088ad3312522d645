//! Clients at work, and what the doctor finds meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use postgres::Client;
use testkit::processes::{self, Database};

/// Clients that repeat their work until this is dropped.
#[derive(Default)]
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// One more client. `work` is called with the number of the round, again and again.
    pub fn client(
        &mut self,
        mut client: Client,
        mut work: impl FnMut(&mut Client, i64) + Send + 'static,
    ) {
        self.thread(move |round| work(&mut client, round));
    }

    /// A thread that does something again and again.
    pub fn thread(&mut self, mut work: impl FnMut(i64) + Send + 'static) {
        let stop = self.stop.clone();
        self.threads.push(std::thread::spawn(move || {
            let mut round = 0;
            while !stop.load(Relaxed) {
                work(round);
                round += 1;
            }
        }));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a client failed");
        }
    }
}

pub fn run(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

/// A finding of the doctor.
#[derive(Debug)]
pub struct Found {
    pub title: String,
    pub instance: String,
    pub subject: String,
}

/// What a machine lacks that has other work as well. The doctor is right to say so, and the test
/// has planted something else.
const OF_THE_MACHINE: [&str; 2] = ["Sessions wait for a processor", "The log disk is slow"];

pub const SECONDS: &str = "5";

/// The findings of the next seconds, without those that are the machine's if it has other work, and
/// all that the doctor says.
pub fn findings(db: &Database, planted: &str) -> (Vec<Found>, String) {
    let is_busy = is_busy();
    let args = [
        "doctor",
        "--data",
        &db.data(),
        "--user",
        "tester",
        "--seconds",
        SECONDS,
    ];
    let output = processes::braid(&args);
    assert!(output.status.success(), "{}", processes::said(&output));
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let mut found = read(&said);
    found.retain(|f| !is_busy || f.title == planted || !OF_THE_MACHINE.contains(&f.title.as_str()));
    (found, said)
}

/// The table of findings, by the places of its columns.
fn read(said: &str) -> Vec<Found> {
    let table = said.split("\nFindings\n").nth(1).expect("findings");
    let table = table.split("\nLock Chains\n").next().expect("findings");
    let lines: Vec<Vec<char>> = table.lines().map(|l| l.chars().collect()).collect();
    let head = table.lines().find(|l| l.contains("% DB time"));
    let Some(head) = head else {
        return Vec::new();
    };
    let place = |name: &str| {
        head.find(name)
            .unwrap_or_else(|| panic!("no {name} in {head}"))
    };
    let (title, inst, subject, evidence) = (
        place("Finding"),
        place("Inst"),
        place("Object or SQL Id"),
        place("Evidence"),
    );
    let cell = |line: &Vec<char>, from: usize, to: usize| {
        let to = to.min(line.len());
        let text: String = line.get(from..to).unwrap_or_default().iter().collect();
        text.trim().to_string()
    };
    let rows = lines.iter().filter(|l| {
        let number = cell(l, 0, title);
        number.chars().next().is_some_and(|c| c.is_ascii_digit())
    });
    rows.map(|l| Found {
        title: cell(l, title, inst),
        instance: cell(l, inst, subject),
        subject: cell(l, subject, evidence),
    })
    .collect()
}

/// Whether the first finding is this one, of this instance and about this. Empty: of none.
#[track_caller]
pub fn expect(db: &Database, title: &str, instance: &str, subject: &str) {
    let (found, said) = findings(db, title);
    let first = found
        .first()
        .unwrap_or_else(|| panic!("nothing found: {said}"));
    assert_eq!(first.title, title, "{said}");
    assert_eq!(first.instance, instance, "{said}");
    assert!(
        first.subject.contains(subject),
        "{subject} is not in {first:?}: {said}"
    );
    println!("{first:?}");
}

/// Whether the machine has more to do than the processors can: threads wait for one now.
pub fn is_busy() -> bool {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text
        .split_whitespace()
        .next()
        .and_then(|w| w.parse().ok())
        .unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    load > processors as f64
}
