//! COPY from and to files of the machine that the instance runs on, for superusers.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use block::value::DatumRef;

use super::input::CopyIn;
use super::output;
use crate::api::{RowSink, Tag};
use crate::error::{Error, Result};
use crate::parse::CopySpec;
use crate::session::SqlSession;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Of a new file; the umask takes from it.
const MODE: u32 = 0o644;

/// COPY FROM a file.
pub fn load(session: &mut SqlSession, spec: &CopySpec, path: &str) -> Result<Tag> {
    refuse_others(session, "from")?;
    let mut copy = CopyIn::begin(&mut session.core, spec)?;
    let mut file =
        File::open(path).map_err(|e| cannot_open(path, "reading", "FROM", "read", &e))?;
    let is_directory = file.metadata().is_ok_and(|m| m.is_dir());
    if is_directory {
        return Err(Error::new("42809", format!("\"{path}\" is a directory")));
    }
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(failed("could not read from COPY file", &e)),
        };
        copy.take(&mut session.core, &buffer[..read])?;
    }
    Ok(Tag::Rows("COPY", copy.finish(&mut session.core)?))
}

/// COPY TO a file.
pub fn unload(session: &mut SqlSession, spec: &CopySpec, path: &str) -> Result<Tag> {
    refuse_others(session, "to")?;
    if !Path::new(path).is_absolute() {
        let message = "relative path not allowed for COPY to file";
        return Err(Error::new("42602", message));
    }
    let mut sink = Lines { path, file: None };
    let rows = output::run(session, spec, &mut sink)?;
    if let Some(mut file) = sink.file {
        file.flush().map_err(|e| not_written(&e))?;
    }
    Ok(Tag::Rows("COPY", rows))
}

fn refuse_others(session: &SqlSession, way: &str) -> Result<()> {
    if session.core.is_superuser() {
        return Ok(());
    }
    let role = match way {
        "from" => "pg_read_server_files",
        _ => "pg_write_server_files",
    };
    let message =
        format!("must be superuser or have privileges of the {role} role to COPY {way} a file");
    let hint = "Anyone can COPY to stdout or from stdin. psql's \\copy command also works for \
                anyone.";
    Err(Error::new("42501", message).hint(hint))
}

/// An error of the operating system, with the SQLSTATE that PostgreSQL has for it.
pub fn failed(what: &str, e: &io::Error) -> Error {
    use io::ErrorKind;
    let state = match e.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "42501",
        ErrorKind::NotFound => "58P01",
        ErrorKind::AlreadyExists => "58P02",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => "42809",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "53100",
        _ => "58030",
    };
    let said = e.to_string();
    let words = said.split(" (os error").next().unwrap_or(&said);
    Error::new(state, format!("{what}: {words}"))
}

fn not_written(e: &io::Error) -> Error {
    failed("could not write to COPY file", e)
}

fn cannot_open(path: &str, purpose: &str, way: &str, verb: &str, e: &io::Error) -> Error {
    let error = failed(&format!("could not open file \"{path}\" for {purpose}"), e);
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => error.hint(format!(
            "COPY {way} instructs the PostgreSQL server process to {verb} a file. You may want a \
             client-side facility such as psql's \\copy."
        )),
        _ => error,
    }
}

/// A file that lines are written to. It is made when the first ones are about to come, so that a
/// COPY that is refused leaves what there was.
struct Lines<'p> {
    path: &'p str,
    file: Option<BufWriter<File>>,
}

impl RowSink for Lines<'_> {
    fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
        Err(Error::internal("rows where COPY data is taken"))
    }

    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(data).map_err(|e| not_written(&e)),
            None => Err(Error::internal("COPY data before its beginning")),
        }
    }

    fn copy_out_begin(&mut self, _: &[i16]) -> Result<()> {
        let path = self.path;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(MODE);
        let file = options
            .open(path)
            .map_err(|e| cannot_open(path, "writing", "TO", "write", &e))?;
        self.file = Some(BufWriter::new(file));
        Ok(())
    }
}
