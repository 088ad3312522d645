//! A session's trace file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sqltrace::Record;

/// What is gathered before it is written in the middle of a call.
const BUFFER_BYTES: usize = 64 << 10;

/// Where an instance's trace files are.
pub(crate) fn directory(database: &Path) -> PathBuf {
    database.join("trace")
}

/// The name of a session's file. Process ids are distinct over instances.
pub(crate) fn file_name(instance: u16, pid: i32) -> String {
    format!("braid{instance}_ora_{pid}.trc")
}

/// A file that grows up to a limit. After an error, or at the limit, it takes no more.
pub(super) struct TraceFile {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    /// Bytes in the file.
    written: u64,
    /// Zero: none.
    limit: u64,
}

impl TraceFile {
    /// Opens the file, which an earlier session may have left, to write behind what it has. It has
    /// bind values in it, so nobody else may read it.
    pub fn open(dir: &Path, name: &str, limit: u64) -> io::Result<TraceFile> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let path = dir.join(name);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)?;
        Ok(TraceFile {
            written: file.metadata()?.len(),
            path,
            file: Some(file),
            buffer: Vec::new(),
            limit,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record, or, if it would not fit, says so instead and ends the file.
    pub fn put(&mut self, record: &Record) -> io::Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        let before = self.buffer.len();
        sqltrace::write(&mut self.buffer, record)?;
        if self.limit > 0 && self.written + self.buffer.len() as u64 > self.limit {
            self.buffer.truncate(before);
            let limit = self.limit;
            let told = Record::Comment(format!("DUMP FILE SIZE IS LIMITED TO {limit} BYTES ***"));
            sqltrace::write(&mut self.buffer, &told)?;
            let written = self.flush();
            self.file = None;
            return written;
        }
        match self.buffer.len() >= BUFFER_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes what has been gathered.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let written = file.write_all(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if written.is_err() {
            self.file = None;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqltrace::{Profile, Reader};
    use std::io::BufReader;

    fn error(err: u64) -> Record {
        Record::Error {
            cursor: 1,
            err,
            tim: 2,
        }
    }

    #[test]
    fn a_file_ends_at_its_limit_and_says_so() {
        let dir = std::env::temp_dir().join(format!("braid-trace-{}", std::process::id()));
        let mut file = TraceFile::open(&dir, "a.trc", 100).unwrap();
        for n in 0..50 {
            file.put(&error(n)).unwrap();
        }
        file.flush().unwrap();
        assert!(file.file.is_none());
        // Another session with the number goes on behind the first, and finds no room.
        let mut again = TraceFile::open(&dir, "a.trc", 100).unwrap();
        again.put(&error(50)).unwrap();
        again.flush().unwrap();
        let text = std::fs::read_to_string(dir.join("a.trc")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let lines = text.lines().collect::<Vec<_>>();
        assert_eq!(
            lines[..4],
            [
                "ERROR #1:err=0 tim=2",
                "ERROR #1:err=1 tim=2",
                "ERROR #1:err=2 tim=2",
                "ERROR #1:err=3 tim=2"
            ]
        );
        assert_eq!(lines[4], "*** DUMP FILE SIZE IS LIMITED TO 100 BYTES ***");
        assert_eq!(lines.len(), 6);
        assert_eq!(Reader::new(BufReader::new(text.as_bytes())).count(), 6);
        let mut profile = Profile::default();
        profile.add("a.trc", text.as_bytes()).unwrap();
        let mut report = Vec::new();
        profile.report(&mut report).unwrap();
        let report = String::from_utf8(report).unwrap();
        assert!(report.contains("a.trc is not complete"), "{report}");
    }
}
