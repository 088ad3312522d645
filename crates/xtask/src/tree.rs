//! The files that the checks look at.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Folders that hold nothing of ours: what is built, what git keeps, data of a database.
const SKIPPED: [&str; 4] = ["target", ".git", "braid-data", "node_modules"];

/// One text file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path below the root, with `/` between folders.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The file name's ending without its dot; empty if there is none.
    pub fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, ending)| ending)
    }

    /// The lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }
}

/// The work tree: text of the files that are checked, and the paths of all others.
#[derive(Default, Debug)]
pub struct Tree {
    /// By path. No text: a file of a kind that no check reads, or a folder.
    files: BTreeMap<String, Option<Source>>,
}

impl Tree {
    /// Reads everything below `root` but what is built.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, path: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if SKIPPED.contains(&name) {
                continue;
            }
            let below = match path {
                "" => name.to_owned(),
                _ => format!("{path}/{name}"),
            };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.files.insert(below.clone(), None);
                self.read_folder(&entry.path(), &below)?;
            } else if kind.is_file() && (below.ends_with(".rs") || below.ends_with(".md")) {
                let text = fs::read_to_string(entry.path())?;
                self.add(&below, &text);
            } else {
                self.files.insert(below, None);
            }
        }
        Ok(())
    }

    /// Adds a text file, and the folders that it lies in.
    pub fn add(&mut self, path: &str, text: &str) {
        for (at, _) in path.match_indices('/') {
            self.files.entry(path[..at].into()).or_default();
        }
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        self.files.insert(path.into(), Some(source));
    }

    /// Whether there is a file or folder of that path.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// The text file of that path.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.files.get(path)?.as_ref()
    }

    /// All text files, by path.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.files.values().flatten()
    }
}
