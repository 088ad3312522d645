//! Advice about errors that newcomers make: it follows the reason of the error.
//!
//! Crates below say what failed and with which object. Only the command line knows its flags.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use server::ServerError;
use sql::params::{self, Kind, Param, ParamError, Unit};

use crate::Failure;
use crate::port_holder::{self, Holder};

/// Files that may be in a directory before it holds a database, or stay after an interrupted
/// creation.
const OWN_FILES: [&str; 4] = ["braid.toml", "cluster.secret", "creating", "evict"];
/// Directories that may be there before the database, or stay after an interrupted creation.
/// Creation itself refuses them if they hold something that it did not put there.
const OWN_DIRECTORIES: [&str; 7] = [
    "certificates",
    "data",
    "dw",
    "lost+found",
    "redo",
    "temp",
    "undo",
];
/// Beginnings of the names of logs, status files and requests in the directory.
const OWN_BEGINNINGS: [&str; 4] = ["guard.json", "guard.log", "instance-", "start-instance-"];

/// The failure of a port that cannot be had.
pub fn of_bind(e: ServerError) -> Failure {
    match e {
        ServerError::InUse(address) => of_port("--port", address),
        e => Failure(e.to_string()),
    }
}

/// The failure of a port that another program has. `flag` chooses the port.
pub fn of_port(flag: &str, address: SocketAddr) -> Failure {
    let (port, ip) = (address.port(), address.ip());
    let (who, stop) = match port_holder::of(address) {
        Holder::Instance { k, pid, dir } => (
            format!(
                "instance {k} of the database in {} (pid {pid})",
                dir.display()
            ),
            format!(
                "stop that database with: braid down --data {}",
                dir.display()
            ),
        ),
        Holder::Program { name, pid } => (
            format!("another program, {name} (pid {pid})"),
            "stop that program".to_string(),
        ),
        Holder::Unknown => ("another program".into(), "stop that program".into()),
    };
    Failure(format!(
        "port {port} on {ip} is in use by {who}: choose another with {flag} (that of the first \
         instance; each further one has the next), or {stop}"
    ))
}

/// The failure of a parameter that cannot be taken as it was given.
pub fn of_parameter(e: &ParamError, name: &str) -> Failure {
    let advice = match (e, params::find(name)) {
        (ParamError::Unknown { .. }, _) => {
            let meant = nearest(name).map_or_else(String::new, |n| format!("\"{n}\" is one; "));
            format!(
                "{meant}docs/operating.md and the view pg_settings list the parameters, and \
                 braid.toml in a database directory those of instances"
            )
        }
        (ParamError::Invalid { .. }, Some(param)) => match takes(param) {
            Some(what) => format!("{} takes {what}", param.name),
            None => return Failure(e.to_string()),
        },
        _ => return Failure(e.to_string()),
    };
    Failure(format!("{e}\nbraid: {advice}"))
}

/// What values a parameter takes; `None` if any text is one.
fn takes(param: &Param) -> Option<String> {
    match param.kind {
        Kind::Bool => Some("on or off".into()),
        Kind::Int { min, max, unit } => {
            let shown = |n: i64| param.show(&n.to_string());
            let units = match unit {
                Unit::None => "",
                Unit::Bytes => "; units are B, kB, MB, GB and TB, and a number alone is bytes",
                Unit::Kilobytes => "; units are B, kB, MB, GB and TB, and a number alone is kB",
                Unit::Milliseconds => {
                    "; units are us, ms, s, min, h and d, and a number alone is milliseconds"
                }
                Unit::Seconds => {
                    "; units are us, ms, s, min, h and d, and a number alone is seconds"
                }
            };
            Some(format!("{} to {}{units}", shown(min), shown(max)))
        }
        Kind::Real { min, max } => Some(format!("{min} to {max}")),
        Kind::Word(words) => Some(format!("one of {}", words.join(", "))),
        Kind::Encoding => Some("the name of an encoding, such as UTF8".into()),
        Kind::Text => None,
    }
}

/// The parameter that was most likely meant: the one that the fewest changes of a letter lead to,
/// if these are no more than a third of the letters.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let distance = |p: &&Param| changes(&name, &p.name.to_ascii_lowercase());
    let best = params::PARAMS.iter().min_by_key(distance)?;
    (distance(&best) <= name.len() / 3).then_some(best.name)
}

/// How many letters have to be put in, left out or replaced to make one text of the other.
fn changes(from: &str, to: &str) -> usize {
    let to = to.as_bytes();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// The failure of a parameter that is not as a start needs it.
pub fn of_setting(Failure(why): Failure, dir: &Path) -> Failure {
    let dir = dir.display();
    Failure(format!(
        "{why}\nbraid: parameters come from flags, {dir}/braid.auto.toml (ALTER SYSTEM SET) and \
         {dir}/braid.toml; mend or remove the line there, or start with --set NAME=VALUE"
    ))
}

/// The failure of a database that could not be created or opened in `dir`. The reason stays as it
/// is.
pub fn of_engine(e: engine::Error, dir: &Path) -> Failure {
    let dir = dir.display();
    let advice = match e.remedy() {
        Some(engine::Remedy::MakeRoom) => format!(
            "make room, or choose a directory on another disk with --data; smaller files for a \
             new database: --set redo_file_size=32MB (now {dir})"
        ),
        Some(engine::Remedy::GrantAccess) => format!(
            "this user needs the right to read and write {dir}; or choose another directory with --data"
        ),
        Some(engine::Remedy::OtherVersion) => format!(
            "start {dir} with the braid that made it and copy its tables out (COPY .. TO STDOUT), \
             or choose another directory with --data"
        ),
        Some(engine::Remedy::StopInstance) => format!(
            "stop the instances that work there with braid down --data {dir}; braid status \
             --data {dir} lists them"
        ),
        Some(engine::Remedy::ChooseDirectory) => {
            "name an empty directory, or one that does not exist, with --data".to_string()
        }
        None => return Failure(e.to_string()),
    };
    Failure(format!("{e}\nbraid: {advice}"))
}

/// Creates the directory of a new database.
pub fn create_directory(dir: &Path) -> Result<(), Failure> {
    make_directory(dir)?;
    check_directory(dir)
}

/// Makes a directory and those above it, as far as they are missing.
pub fn make_directory(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| {
        let dir = dir.display();
        // All directories above are made, so this is the answer of a file system like /proc.
        let why = match e.kind() {
            ErrorKind::NotFound => "the file system there takes no new directories".to_string(),
            _ => e.to_string(),
        };
        Failure(format!(
            "cannot create {dir}: {why}\nbraid: choose a directory that this user may write with \
             --data"
        ))
    })
}

/// Refuses a directory that holds something else than a database.
pub fn check_directory(dir: &Path) -> Result<(), Failure> {
    if has_lost_control(dir) {
        return Err(lost_control(dir));
    }
    let failed = |e: std::io::Error| {
        Failure(format!(
            "cannot read {}: {e}\nbraid: name a directory that this user may read and write with --data",
            dir.display()
        ))
    };
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // A directory may be a link to a directory on another disk.
        let own = match entry.path().is_dir() {
            true => &OWN_DIRECTORIES[..],
            false => &OWN_FILES[..],
        };
        if !own.contains(&&*name) && !OWN_BEGINNINGS.iter().any(|b| name.starts_with(b)) {
            return Err(Failure(format!(
                "{} is not a database, and not empty (it has {name} in it)\n\
                 braid: name an empty directory, or one that does not exist, with --data",
                dir.display()
            )));
        }
    }
    Ok(())
}

/// Refuses a directory without a database, for a command that needs one.
pub fn need_database(dir: &Path) -> Result<(), Failure> {
    if engine::exists(dir) {
        return Ok(());
    }
    Err(no_database(dir))
}

/// Whether a database is in the directory, but for its control file. A creation that was
/// interrupted has left its mark.
fn has_lost_control(dir: &Path) -> bool {
    let is_left = |name: &str| dir.join(name).exists();
    !engine::exists(dir) && is_left("redo/thread1_1.log") && !is_left("creating")
}

fn lost_control(dir: &Path) -> Failure {
    let dir = dir.display();
    Failure(format!(
        "the database in {dir} has lost its control file, {dir}/control\n\
         braid: without it no instance starts: put it back from a copy of the stopped database, \
         or name another directory with --data"
    ))
}

pub fn no_database(dir: &Path) -> Failure {
    if has_lost_control(dir) {
        return lost_control(dir);
    }
    let here = Path::new(".");
    let (shown, name) = (dir.display(), "name the directory of one with --data");
    Failure(match () {
        () if dir.is_relative() && engine::exists(here) => {
            format!("no database in {shown}, but the directory you are in is one: add --data .")
        }
        // A database could not be created there either.
        () if dir.exists() && check_directory(dir).is_err() => {
            format!("no database in {shown}: {name}")
        }
        () => format!(
            "no database in {shown}: {name}, or create one there with braid up --data {shown}"
        ),
    })
}

/// Tells how to reach an instance, also to a person without psql.
pub fn how_to_connect(address: &SocketAddr) -> String {
    let url = format!("postgresql://{address}/braid");
    match is_installed("psql") {
        true => format!("connect with  psql {url}"),
        false => format!(
            "connect to  {url}  without a password; psql is not installed here, it comes with the \
             package postgresql-client (Debian, Ubuntu, Alpine) or postgresql (Fedora)"
        ),
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_parameter_is_recognized() {
        for (written, meant) in [
            ("max_sesions", Some("max_sessions")),
            ("buffercachesize", Some("buffer_cache_size")),
            ("MAX_SESSION", Some("max_sessions")),
            ("shared_preload", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written), meant, "{written}");
        }
        assert_eq!((changes("", "abc"), changes("abc", "abc")), (3, 0));
        assert_eq!(changes("kitten", "sitting"), 3);
    }
}
