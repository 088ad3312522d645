//! Requests to a guard that it start an instance, and its answers. Both are files in the database's
//! directory: `braid start` and the guard have nothing else in common.
//!
//! A request is there whole or not at all, and whoever removes it has taken it. An answer says why
//! the instance is not open; that it is open, its status file says.

use std::fs::DirEntry;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::cli::SettingArgs;

const REQUEST: &str = "start-instance-";
const ANSWER: &str = ".answer";
/// Bytes. A request of more is none that this program has written.
const LONGEST: u64 = 1 << 20;

pub struct StartRequest {
    pub instance: u16,
    /// The settings that were given with it.
    pub own: Result<SettingArgs, Failure>,
}

fn answer_path(dir: &Path, instance: u16) -> PathBuf {
    dir.join(format!("{REQUEST}{instance}{ANSWER}"))
}

fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Failure(format!("cannot remove {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The file under another name until it is whole.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut new = path.as_os_str().to_os_string();
    new.push(".new");
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, path))
        .map_err(|e| Failure(format!("cannot write {}: {e}", path.display())))
}

/// Asks the guard to start an instance, with settings of its own.
pub fn ask(dir: &Path, instance: u16, own: &SettingArgs) -> Result<(), Failure> {
    remove(&answer_path(dir, instance))?;
    let own = own.from_anywhere()?;
    let text = serde_json::to_string(&own).map_err(|e| Failure(format!("the settings: {e}")))?;
    write(&dir.join(format!("{REQUEST}{instance}")), &text)
}

/// Says why an instance that was asked for is not open.
pub fn answer(dir: &Path, instance: u16, why: &str) -> Result<(), Failure> {
    write(&answer_path(dir, instance), why)
}

/// Takes the answer to a request, if there is one yet.
pub fn take_answer(dir: &Path, instance: u16) -> Result<Option<String>, Failure> {
    let path = answer_path(dir, instance);
    match std::fs::read_to_string(&path) {
        Ok(why) => remove(&path).map(|()| Some(why)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure(format!("cannot read {}: {e}", path.display()))),
    }
}

/// Takes the requests that are there.
pub fn take_all(dir: &Path) -> Vec<StartRequest> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut asked: Vec<StartRequest> = entries.flatten().filter_map(|e| take(&e)).collect();
    asked.sort_unstable_by_key(|request| request.instance);
    asked
}

/// The request of this file, which is removed. None of a file that is no request.
fn take(entry: &DirEntry) -> Option<StartRequest> {
    let name = entry.file_name();
    let instance = name.to_str()?.strip_prefix(REQUEST)?.parse().ok()?;
    let own = read(entry).map_err(|e| {
        let path = entry.path();
        Failure(format!("cannot read the request {}: {e}", path.display()))
    });
    // If somebody else has removed it, the request is his.
    std::fs::remove_file(entry.path()).ok()?;
    Some(StartRequest { instance, own })
}

fn read(entry: &DirEntry) -> std::io::Result<SettingArgs> {
    // A pipe would hold up the guard until somebody writes into it.
    if !entry.file_type()?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut text = String::new();
    let file = std::fs::File::open(entry.path())?;
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use testkit::scratch::Scratch;

    use super::*;
    use crate::cli::{Cli, Command};

    fn settings(line: &[&str]) -> SettingArgs {
        match Cli::parse_from(line).command {
            Command::Start(start) => start.settings,
            _ => panic!("not start: {line:?}"),
        }
    }

    #[test]
    fn a_request_is_taken_once_with_paths_that_hold_in_any_directory() {
        let dir = Scratch::new("start-request");
        let own = settings(&["braid", "start", "2", "--config", "own.toml"]);
        answer(&dir, 2, "an old one").ok().unwrap();
        ask(&dir, 2, &own).ok().unwrap();
        assert_eq!(take_answer(&dir, 2).ok().unwrap(), None);
        let [taken] = take_all(&dir).try_into().ok().unwrap();
        assert_eq!(taken.instance, 2);
        let config = taken.own.ok().unwrap().config.unwrap();
        assert_eq!(config, std::env::current_dir().unwrap().join("own.toml"));
        assert!(take_all(&dir).is_empty());
        answer(&dir, 2, "no port").ok().unwrap();
        assert_eq!(take_answer(&dir, 2).ok().unwrap().unwrap(), "no port");
        assert_eq!(take_answer(&dir, 2).ok().unwrap(), None);
    }

    #[test]
    fn what_is_no_request_is_removed_with_a_reason() {
        let dir = Scratch::new("no-request");
        std::fs::write(dir.join("start-instance-3"), "{").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join("start-instance-4"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        std::fs::write(dir.join("start-instance-x"), "{}").unwrap();
        let taken = take_all(&dir);
        let of: Vec<u16> = taken.iter().map(|r| r.instance).collect();
        assert_eq!(of, [3, 4]);
        assert!(taken.iter().all(|r| r.own.is_err()));
        assert!(take_all(&dir).is_empty());
    }
}
