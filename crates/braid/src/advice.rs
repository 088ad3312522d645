//! Advice about errors that newcomers make: it follows the reason of the error.
//!
//! Crates below say what failed and with which object. Only the command line knows its flags.

use std::net::SocketAddr;
use std::path::Path;

use server::ServerError;

use crate::Failure;

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
        ServerError::InUse(_) => Failure(format!(
            "{e}: choose another with --port (that of the first instance; each further one has \
             the next), or stop that program"
        )),
        e => Failure(e.to_string()),
    }
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
        Some(engine::Remedy::ChooseDirectory) => {
            "name an empty directory, or one that does not exist, with --data".to_string()
        }
        None => return Failure(e.to_string()),
    };
    Failure(format!("{e}\nbraid: {advice}"))
}

/// Creates the directory of a new database.
pub fn create_directory(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| {
        Failure(format!(
            "cannot create {}: {e}\nbraid: choose a directory that this user may write with --data",
            dir.display()
        ))
    })?;
    check_directory(dir)
}

/// Refuses a directory that holds something else than a database.
pub fn check_directory(dir: &Path) -> Result<(), Failure> {
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

pub fn no_database(dir: &Path) -> Failure {
    Failure(format!(
        "no database in {0}: name the directory of one with --data, or create one there with \
         braid up --data {0}",
        dir.display()
    ))
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
