//! Directories for tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory of a test's own. Dropping it removes it, unless the test has failed: then it
/// stays for whoever looks into the failure, and its path is printed.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory under cargo's `target/tmp`. Two calls never give the same one, even
    /// with the same name or in two processes.
    pub fn new(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = root().join(format!("{name}-{}-{number}", std::process::id()));
        // An earlier process of this number may have failed and left one behind.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir)
            .unwrap_or_else(|e| panic!("cannot create {}: {e}", dir.display()));
        Scratch(dir)
    }

    /// The path as text, or that of an entry, for command lines.
    pub fn text(&self, entry: &str) -> String {
        let path = match entry {
            "" => self.0.clone(),
            entry => self.0.join(entry),
        };
        path.into_os_string().into_string().expect("UTF-8")
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} is left for a look", self.0.display());
        } else {
            // A test may have removed it itself.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// `tmp` in cargo's target directory, as cargo builds test programs as `target/PROFILE/deps/NAME`.
/// A program that was copied elsewhere has its `tmp` beside itself.
fn root() -> PathBuf {
    let program = std::env::current_exe().expect("a test program has a path");
    let beside = program.parent().expect("a program is in a directory");
    match beside.ancestors().nth(2) {
        Some(target) if beside.ends_with("deps") => target.join("tmp"),
        _ => beside.join("tmp"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_if_the_test_passes_and_stays_if_it_fails() {
        let passes = Scratch::new("passes");
        let path = passes.to_path_buf();
        std::fs::write(path.join("file"), "x").expect("a file");
        drop(passes);
        assert!(!path.exists());

        let fails = Scratch::new("fails");
        let path = fails.to_path_buf();
        let failed = std::thread::spawn(move || {
            let _held = fails;
            panic!("on purpose");
        });
        assert!(failed.join().is_err());
        assert!(path.exists());
        std::fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn one_name_gives_two_directories_under_cargos() {
        let (a, b) = (Scratch::new("same"), Scratch::new("same"));
        assert_ne!(*a, *b);
        assert!(a.parent().is_some_and(|dir| dir.ends_with("tmp")));
        assert_eq!(a.text("x"), format!("{}/x", a.text("")));
    }
}
