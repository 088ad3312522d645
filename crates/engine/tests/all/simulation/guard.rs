//! The guard of an instance, in the role of `braid up`: it reads orders for the instance's end, and
//! kills it.

use super::node;
use super::shared::{Shared, Stage, pause, say};
use engine::cluster::Evictions;
use seam::sim::{self, Process};
use std::sync::Arc;
use std::time::Duration;

/// The first number of guards: they are processes, too, with numbers of their own.
const FIRST: Process = 10_000;
const INTERVAL: Duration = Duration::from_millis(50);

/// The guard of one process.
pub struct Guard {
    shared: Arc<Shared>,
    instance: u16,
    process: Process,
    evictions: Evictions,
    /// The instance's last life before this one. Orders for that life or an earlier one are not for
    /// this one.
    above: u32,
}

impl Guard {
    /// A guard for a process that has not started yet.
    pub fn new(shared: &Arc<Shared>, instance: u16, process: Process) -> engine::Result<Guard> {
        let evictions = Evictions::open_on(&shared.storage().as_client(FIRST + process))?;
        Ok(Guard {
            shared: shared.clone(),
            instance,
            process,
            above: evictions.life(instance)?,
            evictions,
        })
    }

    pub fn watch(self) {
        sim::start_in(FIRST + self.process, "guard", move || {
            if let Err(e) = self.until_it_ends() {
                self.shared.fail(format!("no orders can be read: {e}"));
            }
        });
    }

    fn until_it_ends(&self) -> engine::Result<()> {
        let is_there = || {
            matches!(
                self.shared.stage(self.process),
                Stage::Opening | Stage::Open | Stage::Stopping
            )
        };
        while is_there() {
            if let Some(by) = self.evictions.ordered(self.instance, self.above)? {
                say(&format!(
                    "instance {by} orders the end of process {}",
                    self.process
                ));
                self.shared.met("killed by its guard");
                node::kill(&self.shared, self.process);
            }
            pause(INTERVAL);
        }
        Ok(())
    }
}
