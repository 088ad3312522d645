//! Large objects from and to files of the machine that the instance runs on, for superusers.

use std::fs::File;
use std::io::{self, Read, Write};

use super::PAGE;
use crate::copy::file_error;
use crate::dict::acl::Privileges;
use crate::error::{Error, Result};
use crate::session::Core;

/// Bytes that are moved at once.
const STEP: usize = 64 * PAGE as usize;

fn check_superuser(core: &Core, function: &str) -> Result<()> {
    match core.is_superuser() {
        true => Ok(()),
        false => {
            let message = format!("permission denied for function {function}");
            Err(Error::new("42501", message))
        }
    }
}

fn failed(what: &str, path: &str, e: &io::Error) -> Error {
    file_error(&format!("could not {what} server file \"{path}\""), e)
}

pub fn import(core: &mut Core, path: &str, oid: u32) -> Result<u32> {
    check_superuser(core, "lo_import")?;
    let mut file = File::open(path).map_err(|e| failed("open", path, &e))?;
    let oid = core.create_large_object(oid)?;
    let (mut buffer, mut at, mut filled) = (vec![0; STEP], 0, 0);
    loop {
        let read = match file.read(&mut buffer[filled..]) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|e| failed("read", path, &e))?,
        };
        filled += read;
        if read == 0 || filled == STEP {
            core.write_large(oid, at, &buffer[..filled])?;
            at += filled as u64;
            filled = 0;
        }
        if read == 0 {
            return Ok(oid);
        }
    }
}

pub fn export(core: &mut Core, oid: u32, path: &str) -> Result<()> {
    check_superuser(core, "lo_export")?;
    let object = core.permitted_object(oid, Privileges::SELECT)?;
    let mut file = File::create(path).map_err(|e| failed("create", path, &e))?;
    let mut at = 0;
    loop {
        let bytes = core.read_large(object.oid, at, STEP)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let written = file.write_all(&bytes);
        written.map_err(|e| failed("write", path, &e))?;
        at += bytes.len() as u64;
    }
}
