//! The events of a simulated machine room.

use super::mix::Event;
use super::node;
use super::scenario::Room;
use super::shared::{Stage, pause, say};
use seam::sim::{self, Process, net};
use std::time::Duration;
use storage::Faults;

impl Room {
    pub fn event(&mut self, instances: u16) {
        let k = 1 + self.rng.below(u64::from(instances)) as u16;
        let Some(&process) = self.present.get(&k) else {
            return self.start(k);
        };
        let other = *self
            .present
            .values()
            .nth(self.rng.below(self.present.len() as u64) as usize)
            .expect("it is below their number");
        let event = self.mix.event(&mut self.rng);
        self.shared.met(&format!("event: {event:?}"));
        match event {
            Event::Kill => self.kill_some(k),
            Event::KillWriting => self.kill_writing(k, process),
            Event::LosePower => {
                self.lose_power();
                self.start_some(1..=instances);
            }
            Event::Stop => self.stop(k, process),
            Event::Freeze => self.freeze(process),
            Event::Cut if other != process => {
                say(&format!("process {process} is cut off from {other}"));
                net::cut(process, other);
                self.cuts.push((process, other));
            }
            Event::Heal => self.heal(),
            Event::Break if other != process => {
                say(&format!("connections of {process} and {other} break"));
                net::break_connections(process, other);
            }
            Event::Cut | Event::Break => {}
            Event::IoError => self.doom(process),
            Event::FullDisk => self.fill_disk(),
        }
    }

    fn start_some(&mut self, instances: impl IntoIterator<Item = u16>) {
        for k in instances {
            if self.rng.one_in(2) {
                self.start(k);
            }
        }
    }

    fn kill_some(&mut self, k: u16) {
        let stage = self.shared.stage(self.present[&k]);
        self.kill(k, &format!("killed: {stage:?}"));
        // Also kills another process at the same time, or the one that recovers the first.
        let (next, why) = match self.rng.below(6) {
            0 => (
                self.present.keys().next_back().copied(),
                "killed: with another",
            ),
            1 => {
                let time = self.rng.below(150_000);
                pause(Duration::from_micros(time));
                (
                    self.present.keys().next().copied(),
                    "killed: during a recovery",
                )
            }
            2 => {
                self.stop_while_another_is_recovered();
                (None, "")
            }
            _ => (None, ""),
        };
        next.into_iter().for_each(|k| self.kill(k, why));
        self.start_some(next.into_iter().chain([k]));
    }

    fn kill(&mut self, k: u16, why: &str) {
        if let Some(process) = self.present.remove(&k) {
            self.shared.met(why);
            node::kill(&self.shared, process);
        }
    }

    /// Kills a process in the middle of a write. Its locks stay until the device has finished the
    /// last write.
    fn kill_writing(&mut self, k: u16, process: Process) {
        say(&format!("process {process} is killed when it writes"));
        self.shared.book().doomed.insert(process);
        self.shared.storage().kill_client_writing(process);
        let time = self.rng.below(30_000);
        pause(Duration::from_micros(time));
        self.kill(k, "killed: writing");
        let time = self.rng.below(200_000);
        pause(Duration::from_micros(time));
        if self.shared.storage().settle(process) {
            say(&format!("the last write of process {process} is done"));
            self.shared.met("writes of the killed settled late");
        }
        self.start_some([k]);
    }

    fn stop(&mut self, k: u16, process: Process) {
        // During a cut no instance comes or goes.
        self.heal();
        if self.wait_for(process, &Stage::Open) {
            self.shared.set_stage(process, Stage::Stopping);
            self.present.remove(&k);
            if self.rng.one_in(2) {
                self.wait_for(process, &Stage::Stopped);
                self.start(k);
            }
        }
    }

    fn stop_while_another_is_recovered(&mut self) {
        let time = self.rng.below(50_000);
        pause(Duration::from_micros(time));
        let is_open = |p: &Process| self.shared.stage(*p) == Stage::Open;
        let open = self.present.iter().find(|(_, p)| is_open(p));
        if let Some((&k, &process)) = open {
            // During a cut no instance goes.
            self.heal();
            self.shared.met("stopped: during a recovery");
            self.shared.set_stage(process, Stage::Stopping);
            self.present.remove(&k);
        }
    }

    /// Freezes a process for longer than others wait, if they do not wait for ever.
    fn freeze(&mut self, process: Process) {
        let long = self.mix.misscount.map_or(0, |m| 6 * m.as_millis() as u64);
        let time = match self.rng.one_in(2) {
            true => 1 + self.rng.below(400 + long),
            false => 1 + self.rng.below(400),
        };
        say(&format!("process {process} is frozen for {time} ms"));
        sim::freeze(process, Duration::from_millis(time));
    }

    /// Lets calls of a process fail from some moment on: writes and syncs for good, reads for a
    /// while.
    fn doom(&mut self, process: Process) {
        let storage = self.shared.storage();
        let soon = |n: u64, of: u64| Some(n + 1 + of);
        let after = self.rng.below(100);
        let fails = Faults {
            client: Some(process),
            capacity: self.faults.capacity,
            ..Faults::default()
        };
        self.faults = match self.rng.below(4) {
            0 => Faults {
                fail_from_write: soon(storage.writes(), after),
                fail_writes: u64::MAX,
                ..fails
            },
            1 => Faults {
                fail_from_sync: soon(storage.syncs(), after),
                fail_syncs: u64::MAX,
                // An instance believes what it reads back after a failed sync (README, limits). The
                // power may be lost later here.
                syncs_can_be_repeated: true,
                ..fails
            },
            _ => Faults {
                fail_from_read: soon(storage.reads(), after),
                fail_reads: 1 + self.rng.below(30),
                ..fails
            },
        };
        say(&format!(
            "calls of process {process} fail: {:?}",
            self.faults
        ));
        self.shared.book().doomed.insert(process);
        storage.set_faults(self.faults);
    }

    fn fill_disk(&mut self) {
        if self.faults.capacity.is_some() {
            return self.mend();
        }
        let storage = self.shared.storage();
        let left = self.rng.below(256 << 10);
        say(&format!("the disk has {left} bytes left"));
        self.faults.capacity = Some(storage.used() + left);
        self.shared.book().full_until = Some(u64::MAX);
        storage.set_faults(self.faults);
    }

    /// Gives the disk room again, and ends failing calls.
    pub fn mend(&mut self) {
        if self.faults.capacity.take().is_some() {
            say("the disk has room again");
            self.shared.book().full_until = Some(super::shared::now_us());
        }
        self.faults = Faults::default();
        self.shared.storage().set_faults(self.faults);
    }

    /// Kills everything at once, and lets unsynced writes be lost.
    pub fn lose_power(&mut self) {
        say("the power is lost");
        self.shared.met("killed: everybody, by loss of power");
        self.heal();
        self.mend();
        self.present.clear();
        for process in 1..=self.processes {
            if !matches!(
                self.shared.stage(process),
                Stage::Stopped | Stage::Refused(_)
            ) {
                self.shared.set_stage(process, Stage::Killed);
            }
            sim::kill(process);
        }
        let storage = self.shared.storage();
        let after = storage.after_crash(self.rng.next());
        *self.shared.storage.lock().expect("nobody panics with it") = after;
    }
}
