//! A log file of bounded size. A full file becomes `NAME.1`, that file becomes `NAME.2`, and so on.
//! The oldest file is removed.
//!
//! **Invariants.**
//! - No file is larger than the limit, and there are never more files than the limit says. A line
//!   that cannot be written within these bounds, or on a full disk, is lost. The next line that can
//!   be written says how many lines are missing.
//! - A line is written by one call. If that call breaks off, the next line begins on a new one.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::Limits;

pub struct RotatingFile {
    path: PathBuf,
    limits: Limits,
    /// Whether standard error is redirected to this file.
    takes_stderr: bool,
    /// None as long as the disk has no room for it.
    file: Option<File>,
    size: u64,
    /// The number of lines lost since the last one that was written, and why the last of them was
    /// lost.
    lost: Option<(u64, io::Error)>,
    /// Whether the file ends with a part of a line.
    is_torn: bool,
}

impl RotatingFile {
    /// Opens the file, to append to what is there. A full disk is no error.
    pub fn open(path: &Path, limits: Limits, takes_stderr: bool) -> io::Result<RotatingFile> {
        let mut rotating = RotatingFile {
            path: path.to_path_buf(),
            limits,
            takes_stderr,
            file: None,
            size: 0,
            lost: None,
            is_torn: false,
        };
        match rotating.reopen() {
            Err(e) if !is_full(&e) => Err(e),
            _ => Ok(rotating),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        // It has statements and their values in it, so nobody else may read it.
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)?;
        self.size = file.metadata()?.len();
        if self.takes_stderr {
            rustix::stdio::dup2_stderr(&file)?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Writes a line, which ends with a newline, or counts it as lost.
    pub fn write(&mut self, line: &str) {
        let gap = match &self.lost {
            Some((lines, why)) => format!("({lines} lines are missing here: {why})\n"),
            None => String::new(),
        };
        match self.append(&(gap + line)) {
            Ok(()) => self.lost = None,
            Err(e) => {
                let lines = self.lost.take().map_or(0, |(lines, _)| lines);
                self.lost = Some((lines + 1, e));
            }
        }
    }

    pub fn has_stderr(&self) -> bool {
        self.takes_stderr && self.file.is_some()
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        let end = self.size + u64::from(self.is_torn) + text.len() as u64;
        if self.size > 0 && end > self.limits.file_bytes {
            self.rotate()?;
        }
        let text = match self.is_torn {
            true => format!("\n{text}"),
            false => text.to_string(),
        };
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let written = file.write_all(text.as_bytes());
        match &written {
            Ok(()) => {
                self.size += text.len() as u64;
                self.is_torn = false;
            }
            Err(_) => {
                let size = file.metadata()?.len();
                self.is_torn |= size > self.size;
                self.size = size;
            }
        }
        written
    }

    /// Begins a new file. If that fails, the next line tries again.
    fn rotate(&mut self) -> io::Result<()> {
        // The oldest files go first: whatever breaks off below, there is no file too many.
        for n in (self.limits.files - 1).. {
            match std::fs::remove_file(self.numbered(n)) {
                Err(e) if e.kind() == ErrorKind::NotFound => break,
                removed => removed?,
            }
        }
        for n in (0..self.limits.files - 1).rev() {
            match std::fs::rename(self.numbered(n), self.numbered(n + 1)) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        self.file = None;
        self.is_torn = false;
        self.reopen()
    }

    /// The n-th file by age, from 0.
    fn numbered(&self, n: u32) -> PathBuf {
        match n {
            0 => self.path.clone(),
            n => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{n}"));
                name.into()
            }
        }
    }
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("braid-rotation-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Scratch(dir)
        }

        fn open(&self, file_bytes: u64, files: u32) -> RotatingFile {
            let limits = Limits { file_bytes, files };
            RotatingFile::open(&self.0.join("x.log"), limits, false).unwrap()
        }

        /// The files by name, with their text.
        fn files(&self) -> Vec<(String, String)> {
            let entries = std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap());
            let mut files: Vec<(String, String)> = entries
                .map(|e| {
                    let name = e.file_name().into_string().unwrap();
                    (name, std::fs::read_to_string(e.path()).unwrap())
                })
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_bounded_and_hold_the_newest_lines_in_order() {
        let scratch = Scratch::new("bound");
        let (file_bytes, files) = (1000, 3);
        let mut log = scratch.open(file_bytes, files);
        let mut next = 0u32;
        for round in 0..200 {
            // Lines are longer and shorter. Now and then another process goes on with the file.
            if round % 60 == 59 {
                log = scratch.open(file_bytes, files);
            }
            for width in [9, 60, 250] {
                log.write(&format!("{next:0>width$}\n"));
                next += 1;
            }
            let found = scratch.files();
            assert!(found.len() <= files as usize, "{found:?}");
            assert!(
                found.iter().all(|(_, t)| t.len() as u64 <= file_bytes),
                "{found:?}"
            );
        }
        let found = scratch.files();
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["x.log", "x.log.1", "x.log.2"]);
        let text: String = found.iter().rev().map(|(_, text)| &**text).collect();
        let numbers: Vec<u32> = text.lines().map(|l| l.parse().unwrap()).collect();
        let oldest = numbers[0];
        assert_eq!(numbers, (oldest..next).collect::<Vec<u32>>());
        assert!(text.len() as u64 > file_bytes * 2, "most of it is used");
        // With a smaller limit at the next start, files beyond it go.
        let mut log = scratch.open(file_bytes, 2);
        (0..9).for_each(|_| log.write(&format!("{:0>250}\n", 0)));
        assert_eq!(scratch.files().len(), 2);
    }

    #[test]
    fn nobody_else_may_read_a_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = Scratch::new("mode");
        let mut log = scratch.open(100, 3);
        (0..9).for_each(|n| log.write(&format!("{n:0>30}\n")));
        let names: Vec<String> = scratch.files().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["x.log", "x.log.1", "x.log.2"]);
        for name in names {
            let metadata = std::fs::metadata(scratch.0.join(&name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn what_could_not_be_written_is_counted_where_it_is_missing() {
        let scratch = Scratch::new("lost");
        let mut log = scratch.open(1000, 2);
        log.write("first\n");
        // This device takes nothing, like a full disk.
        let kept = log.file.replace(File::create("/dev/full").unwrap());
        log.write("second\n");
        log.write("third\n");
        log.file = kept;
        log.size = log.file.as_ref().unwrap().metadata().unwrap().len();
        log.write("fourth\n");
        let text = std::fs::read_to_string(scratch.0.join("x.log")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "first", "fourth"));
        assert!(
            lines[1].starts_with("(2 lines are missing here: No space left"),
            "{}",
            lines[1]
        );
    }

    #[test]
    fn a_torn_line_is_not_continued_by_the_next() {
        let scratch = Scratch::new("torn");
        let mut log = scratch.open(1000, 2);
        log.write("begin");
        log.is_torn = true;
        log.write("next\n");
        let text = std::fs::read_to_string(scratch.0.join("x.log")).unwrap();
        assert_eq!(text, "begin\nnext\n");
    }

    /// If something is in the place of an older file, nothing is written beyond the bound.
    #[test]
    fn without_rotation_the_bound_holds() {
        let scratch = Scratch::new("stuck");
        let mut log = scratch.open(100, 2);
        std::fs::create_dir(scratch.0.join("x.log.1")).unwrap();
        (0..9).for_each(|n| log.write(&format!("{n:0>30}\n")));
        let size = std::fs::metadata(&log.path).unwrap().len();
        assert!(size <= 100, "{size}");
        std::fs::remove_dir(scratch.0.join("x.log.1")).unwrap();
        log.write("goes on\n");
        let text = std::fs::read_to_string(&log.path).unwrap();
        assert!(text.contains("(6 lines are missing here: "), "{text}");
        assert!(text.ends_with("goes on\n"), "{text}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let limits = Limits {
            file_bytes: 100,
            files: 2,
        };
        let path = Path::new("/nonexistent/x.log");
        assert!(RotatingFile::open(path, limits, false).is_err());
    }
}
