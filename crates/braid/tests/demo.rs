//! `braid demo` shows all its steps and leaves nothing behind, however it ends. It fails if
//! something is not as it claims.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use testkit::ports::free_ports;
use testkit::processes::program;

/// Longer than anything here takes on a loaded machine. Only a failing test waits for so long.
const PATIENCE: Duration = Duration::from_secs(120);
const HEADINGS: [&str; 8] = [
    "1. Start two instances of one database",
    "2. Write on one instance, read on the other",
    "3. Who made me wait? A block",
    "4. Who made me wait? A row",
    "5. Draw sequence values on both instances",
    "6. kill -9 an instance under load",
    "7. Look for every acknowledged commit",
    "8. Stop both instances and verify the files",
];

/// A demo that waits for Enter between its steps.
struct Demo {
    dir: PathBuf,
    port: u16,
    process: Child,
    output: BufReader<ChildStdout>,
    said: String,
}

impl Demo {
    fn start(name: &str) -> Demo {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("demo-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let port = free_ports(2);
        let mut process = Command::new(program())
            .args(["demo", "--pause", "--port", &port.to_string(), "--data"])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("braid starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let said = String::new();
        Demo {
            dir,
            port,
            process,
            output,
            said,
        }
    }

    /// Reads on to the point where the demo waits for Enter.
    fn read_to_pause(&mut self) {
        loop {
            let mut line = String::new();
            let n = self.output.read_line(&mut line).expect("UTF-8");
            if n == 0 {
                panic!("the demo has ended: {}", self.errors());
            }
            self.said += &line;
            if line.contains("press Enter") {
                return;
            }
        }
    }

    fn enter(&mut self) {
        let to_demo = self.process.stdin.as_mut().expect("a pipe");
        to_demo.write_all(b"\n").expect("the demo reads");
    }

    /// Lets the demo come to the pause before this step.
    fn go_on_to(&mut self, step: usize) {
        self.read_to_pause();
        for _ in 2..step {
            self.enter();
            self.read_to_pause();
        }
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        let mut errors = self.process.stderr.take().expect("a pipe");
        errors.read_to_string(&mut text).expect("UTF-8");
        text
    }

    /// Reads on to the end of the demo.
    fn end(&mut self) -> (ExitStatus, String) {
        self.output.read_to_string(&mut self.said).expect("UTF-8");
        let errors = self.errors();
        (self.process.wait().expect("it ends"), errors)
    }

    /// The guard and the instances. They are known while the demo runs.
    fn pids(&self) -> Vec<u64> {
        let pid = |name: &str| {
            let text = std::fs::read_to_string(self.dir.join(name)).expect(name);
            let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            file["pid"].as_u64().expect("a pid")
        };
        ["guard.json", "instance-1.json", "instance-2.json"]
            .map(pid)
            .to_vec()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn signal(which: &str, pid: u64) {
    let sent = Command::new("kill")
        .args([which, &pid.to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

/// Whether a process runs, and does not merely wait to be noticed by its parent.
fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, state)| state);
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

fn until_all_have_ended(pids: &[u64]) {
    let deadline = Instant::now() + PATIENCE;
    while pids.iter().any(|pid| lives(*pid)) {
        assert!(Instant::now() < deadline, "one of {pids:?} still runs");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn the_demo_shows_every_step_and_leaves_nothing_behind() {
    let mut demo = Demo::start("whole");
    demo.read_to_pause();
    let pids = demo.pids();
    // One Enter more than there are pauses would not be read.
    (2..=HEADINGS.len()).for_each(|_| demo.enter());
    let (status, errors) = demo.end();
    assert!(status.success(), "{status}: {}{errors}", demo.said);
    for heading in HEADINGS {
        assert!(
            demo.said.contains(&format!("\n{heading}\n")),
            "{heading}: {}",
            demo.said
        );
    }
    let notices = demo.said.matches("Notice: ").count();
    assert_eq!(notices, HEADINGS.len(), "{}", demo.said);
    assert!(
        demo.said.contains("claims were checked, and held"),
        "{}",
        demo.said
    );
    assert!(!demo.said.contains('\x1b'), "colours, and no terminal");
    assert!(!demo.dir.exists(), "{} is left behind", demo.dir.display());
    assert!(
        !pids.iter().any(|pid| lives(*pid)),
        "one of {pids:?} still runs"
    );
}

#[test]
fn an_acknowledged_commit_that_is_lost_fails_the_demo() {
    let mut demo = Demo::start("lost");
    demo.go_on_to(7);
    let pids = demo.pids();
    // The first payment of a client was acknowledged: otherwise there would be no second one.
    let url = format!("postgresql://127.0.0.1:{}/braid", demo.port);
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("connect");
    let lost = "delete from payment where client = 3 and n = 1";
    assert_eq!(client.execute(lost, &[]).expect("deleted"), 1);
    drop(client);
    demo.enter();
    let (status, errors) = demo.end();
    assert_eq!(status.code(), Some(1), "{}{errors}", demo.said);
    assert!(errors.contains("step 7 failed"), "{errors}");
    assert!(
        errors.contains("the first is payment 1 of client 3"),
        "{errors}"
    );
    // The data is kept for people who want to know why.
    assert!(errors.contains(&demo.dir.display().to_string()), "{errors}");
    assert!(demo.dir.join("control").exists());
    assert!(
        !pids.iter().any(|pid| lives(*pid)),
        "one of {pids:?} still runs"
    );
}

#[test]
fn a_demo_whose_instances_are_gone_fails() {
    let mut demo = Demo::start("gone");
    demo.go_on_to(2);
    let pids = demo.pids();
    signal("-9", pids[0]);
    // They stop without their guard.
    until_all_have_ended(&pids);
    demo.enter();
    let (status, errors) = demo.end();
    assert_eq!(status.code(), Some(1), "{}{errors}", demo.said);
    assert!(
        errors.contains("step 2 failed: cannot connect to instance 1"),
        "{errors}"
    );
    assert!(demo.dir.join("control").exists(), "the data is kept");
}

#[test]
fn a_demo_that_is_interrupted_cleans_up() {
    let mut demo = Demo::start("interrupted");
    demo.go_on_to(3);
    let pids = demo.pids();
    signal("-INT", demo.process.id().into());
    let (status, errors) = demo.end();
    assert_eq!(status.code(), Some(130), "{}{errors}", demo.said);
    assert!(errors.contains("interrupted"), "{errors}");
    assert!(!demo.dir.exists(), "{} is left behind", demo.dir.display());
    assert!(
        !pids.iter().any(|pid| lives(*pid)),
        "one of {pids:?} still runs"
    );
}

/// The end of the input, as Ctrl-D makes it on a terminal, is no Enter.
#[test]
fn a_demo_whose_input_ends_cleans_up() {
    let mut demo = Demo::start("ended");
    demo.go_on_to(3);
    let pids = demo.pids();
    drop(demo.process.stdin.take());
    let (status, errors) = demo.end();
    assert_eq!(status.code(), Some(130), "{}{errors}", demo.said);
    assert!(!demo.said.contains(HEADINGS[2]), "{}", demo.said);
    assert!(!demo.dir.exists(), "{} is left behind", demo.dir.display());
    assert!(
        !pids.iter().any(|pid| lives(*pid)),
        "one of {pids:?} still runs"
    );
}

#[test]
fn a_demo_that_is_killed_leaves_no_instance() {
    let mut demo = Demo::start("killed");
    demo.go_on_to(2);
    let pids = demo.pids();
    demo.process.kill().expect("kill -9");
    until_all_have_ended(&pids);
}

#[test]
fn a_directory_with_something_in_it_is_refused() {
    let dir =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-full-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let precious = dir.join("precious");
    std::fs::write(&precious, "mine").expect("a file");
    let output = Command::new(program())
        .args(["demo", "--data"])
        .arg(&dir)
        .output();
    let output = output.expect("braid runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("is not empty") && errors.contains("--data"),
        "{errors}"
    );
    assert!(precious.exists());
    std::fs::remove_dir_all(&dir).expect("removed");
}
