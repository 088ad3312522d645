//! Instances in processes of their own: stopped, resumed, killed, and come back in another life.
//! The test binary starts itself again; [`child`] is instance 2.

use crate::common::*;
use block::InstanceId;
use interconnect::{Error, Lane, LinkChange, PeerAddress};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

const ADDRESS: &str = "BRAID_INTERCONNECT_PEER";
const LIFE: &str = "BRAID_INTERCONNECT_LIFE";
/// How many looks a pause lasts. A machine under load may make a few of these look silent by
/// itself.
const PAUSE_LOOKS: u32 = 40;

fn peer(instance: u16, address: SocketAddr) -> PeerAddress {
    PeerAddress {
        instance: InstanceId(instance),
        address,
    }
}

/// Runs instance 2, and is not a test by itself. When asked, the instance says the longest silence
/// it has seen.
#[test]
fn child() {
    let (Ok(address), Ok(life)) = (std::env::var(ADDRESS), std::env::var(LIFE)) else {
        return;
    };
    let me = member(2, life.parse().unwrap());
    let two = start(config(me, &[peer(1, address.parse().unwrap())]), bind());
    println!("READY");
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "silence");
        // One look is awaited after the question, so that the answer is about now.
        let looks = two.service.read(|b| b.looks);
        two.service
            .until("a look", |b| (b.looks > looks + 1).then_some(()));
        println!("LONGEST {}", two.service.read(|b| b.longest_silence));
    }
}

struct Two {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Two {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Two {
    fn start(one: &Node, life: u32) -> Two {
        let mut process = testkit::child::command(module_path!(), "child")
            .env(ADDRESS, one.address.to_string())
            .env(LIFE, life.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut two = Two {
            process,
            ask,
            answers,
        };
        two.hear("READY");
        one.connected(member(2, life));
        two
    }
    fn hear(&mut self, what: &str) -> String {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            let n = self.answers.read_line(&mut line).unwrap();
            assert!(n > 0, "instance 2 ended without saying {what}");
        }
        line
    }
    fn longest_silence(&mut self) -> u32 {
        writeln!(self.ask, "silence").unwrap();
        let said = self.hear("LONGEST ");
        let n = said.split("LONGEST ").nth(1).unwrap();
        n.trim().parse().unwrap()
    }
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

fn one() -> Node {
    start(
        config(member(1, 1), &[peer(2, "127.0.0.1:1".parse().unwrap())]),
        bind(),
    )
}

/// Race 15 of docs/design.md. The stopped instance is silent and still connected, and nobody says
/// that it is dead. When it wakes up, it finds what was sent to it unread, and finds nobody silent.
#[test]
fn a_pause_shows_to_the_others_and_does_not_make_them_look_dead() {
    let one = one();
    let mut two = Two::start(&one, 1);
    one.call(member(2, 1), Lane::lms(0), ECHO, &[1]).unwrap();
    two.signal(Signal::STOP);
    let seen = one.service.until("silence", |b| {
        let e = b.evidence.iter().find(|e| e.instance == InstanceId(2))?;
        (e.silent_looks >= PAUSE_LOOKS).then_some(*e)
    });
    assert_eq!((seen.incarnation, seen.lanes_connected), (Some(1), 3));
    two.signal(Signal::CONT);
    one.call(member(2, 1), Lane::lms(0), ECHO, &[1]).unwrap();
    one.service.until("the end of silence", |b| {
        b.evidence
            .iter()
            .any(|e| e.silent_looks < PAUSE_LOOKS)
            .then_some(())
    });
    let longest = two.longest_silence();
    assert!(
        longest < PAUSE_LOOKS / 2,
        "instance 2 found {longest} looks silent"
    );
}

/// A killed process is noticed at once on every lane. What was asked of it fails. Its next life is
/// another member.
#[test]
fn a_killed_instance_is_noticed_and_its_next_life_is_another_member() {
    let one = one();
    for life in 1..=3 {
        let mut two = Two::start(&one, life);
        std::thread::scope(|s| {
            let asker = s.spawn(|| one.call(member(2, life), Lane::lms(1), PARK, &[0]).err());
            // Any answer on that lane comes after the request was read.
            one.call(member(2, life), Lane::lms(1), ECHO, &[1]).unwrap();
            two.process.kill().unwrap();
            let e = asker.join().unwrap().unwrap();
            assert!(
                matches!(e, Error::Lost { .. } | Error::NotConnected(_)),
                "{e}"
            );
        });
        one.service.until("the end of all lanes", |b| {
            let downs = b
                .changes
                .iter()
                .filter(|c| matches!(c, LinkChange::Down(m, ..) if *m == member(2, life)));
            (downs.count() == 3).then_some(())
        });
        let e = one
            .note(member(2, life), Lane::lms(0), 1, b"x", &[])
            .unwrap_err();
        assert!(matches!(e, Error::NotConnected(_)), "{e}");
    }
}
