//! The fence command: a program of the operator's that makes sure that a machine or process is
//! gone. It serves storage whose locks take too long to be given up, or never are.

use crate::{Error, Result};
use block::InstanceId;
use std::process::{Command, Stdio};
use wait::Event;

/// A command and its arguments. Nothing is expanded, and no shell is involved.
///
/// The command gets `BRAID_INSTANCE`, `BRAID_INCARNATION` and `BRAID_ADDRESS` in its environment.
/// It ends with 0 when, and only when, that instance can write no more. The instance waits for it:
/// a time limit is the command's own business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceCommand {
    program: String,
    arguments: Vec<String>,
}

/// The evidence that the fence command has confirmed the kill of this life of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    victim: InstanceId,
    incarnation: u32,
}

impl Fenced {
    pub fn victim(&self) -> InstanceId {
        self.victim
    }
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }
}

impl FenceCommand {
    /// The command from the parameter's words. None if there are none.
    pub fn new(words: &[String]) -> Option<FenceCommand> {
        let (program, arguments) = words.split_first()?;
        Some(FenceCommand {
            program: program.clone(),
            arguments: arguments.to_vec(),
        })
    }

    pub fn run(&self, victim: InstanceId, incarnation: u32, address: &str) -> Result<Fenced> {
        let failed = |why: String| Error::Fence {
            command: self.program.clone(),
            why,
        };
        let output = wait::during(Event::FenceCommand, [u64::from(victim.0), 0, 0], || {
            Command::new(&self.program)
                .args(&self.arguments)
                .env("BRAID_INSTANCE", victim.0.to_string())
                .env("BRAID_INCARNATION", incarnation.to_string())
                .env("BRAID_ADDRESS", address)
                .stdin(Stdio::null())
                .output()
        })
        .map_err(|e| failed(e.to_string()))?;
        if output.status.success() {
            return Ok(Fenced {
                victim,
                incarnation,
            });
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it said nothing");
        Err(failed(format!("{}: {last}", output.status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Result<Fenced> {
        let words = ["sh", "-c", script].map(String::from);
        let command = FenceCommand::new(&words).unwrap();
        command.run(InstanceId(3), 8, "host:5603")
    }

    #[test]
    fn only_a_command_that_ends_well_has_fenced() {
        let fenced =
            run("test $BRAID_INSTANCE.$BRAID_INCARNATION.$BRAID_ADDRESS = 3.8.host:5603").unwrap();
        assert_eq!((fenced.victim(), fenced.incarnation()), (InstanceId(3), 8));
        let e = run("echo cannot reach the power switch >&2; exit 4").unwrap_err();
        assert!(e.to_string().contains("power switch"), "{e}");
        assert!(run("kill -9 $$").is_err());
        let missing = FenceCommand::new(&["/no/such/program".to_string()]).unwrap();
        assert!(missing.run(InstanceId(3), 8, "").is_err());
        assert_eq!(FenceCommand::new(&[]), None);
    }
}
