//! The values an instance runs with, where each came from, and ALTER SYSTEM SET.
//!
//! Precedence: a flag on the command line, then ALTER SYSTEM SET (`braid.auto.toml` in the database directory), then
//! `braid.toml` there, then the default. ALTER SYSTEM SET takes effect at the next start. Exceptions are parameters of the system, and those of
//! sessions for sessions that begin afterwards: they take effect at once in the process that runs the statement, and in the other processes of the
//! database when these look next ([`Instance::follow_auto_file`]).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use super::{Context, Kind, Param, find};
use crate::error::{Error, Result};

/// The file that people edit, in the database directory.
pub const CONFIG_FILE: &str = "braid.toml";
/// The file that ALTER SYSTEM SET writes, beside it. One `name = "value"` a line, values in canonical form.
pub const AUTO_FILE: &str = "braid.auto.toml";

/// Where a value came from, lowest precedence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default,
    ConfigFile,
    AlterSystem,
    CommandLine,
}

impl Source {
    /// PostgreSQL's word, as in `pg_settings.source`.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::ConfigFile | Source::AlterSystem => "configuration file",
            Source::CommandLine => "command line",
        }
    }
}

/// A setting that cannot be taken: which, from where, and why.
#[derive(Debug, thiserror::Error)]
pub enum ParamError {
    #[error("{place}: there is no parameter \"{name}\"")]
    Unknown { place: String, name: String },
    #[error("{place}: {message}")]
    Invalid { place: String, message: String },
    #[error("{place}: parameter \"{name}\" cannot be set")]
    Internal { place: String, name: String },
}

/// What tells one state of a file from another without reading it. A replaced file has another inode, or another time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// By parameter: what each source gives it.
type Values = BTreeMap<&'static str, BTreeMap<Source, String>>;

/// Says why no instance could start with such parameters, if none could.
type StartCheck = Box<dyn Fn(&Instance) -> std::result::Result<(), String> + Send + Sync>;

pub struct Instance {
    /// The values that each source gives a parameter; the last is in effect. Guards them against a concurrent ALTER SYSTEM SET; held for a look-up
    /// only, and for writing the file.
    values: RwLock<Values>,
    /// The file of ALTER SYSTEM SET as [`Instance::follow_auto_file`] has seen it last. Locked before `values`.
    seen: Mutex<Option<Stamp>>,
    /// The database directory; `None` in tests that have none.
    dir: Option<PathBuf>,
    /// Rises whenever values that are in effect may have changed.
    changes: AtomicU64,
    start_check: OnceLock<StartCheck>,
}

impl Instance {
    pub fn new(dir: Option<&Path>) -> Instance {
        Instance {
            values: RwLock::default(),
            seen: Mutex::default(),
            dir: dir.map(Path::to_path_buf),
            changes: AtomicU64::new(0),
            start_check: OnceLock::new(),
        }
    }

    /// Sets what ALTER SYSTEM SET asks whether an instance would start with the parameters then.
    pub fn check_starts(
        &self,
        check: impl Fn(&Instance) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) {
        let first = self.start_check.set(Box::new(check)).is_ok();
        assert!(first, "invariant: an instance has one check of its start");
    }

    /// Takes a setting from `source`. It is in effect unless a source of higher precedence gives another. `place` is named in errors.
    pub fn set(
        &self,
        name: &str,
        value: &str,
        source: Source,
        place: &str,
    ) -> std::result::Result<(), ParamError> {
        let (param, value) = checked(name, value, place)?;
        let mut values = self.values.write();
        values.entry(param.name).or_default().insert(source, value);
        Ok(())
    }

    /// States a fact of this instance (its number, its port), whatever the parameter's context and other sources say.
    pub fn state(&self, name: &'static str, value: String) {
        debug_assert!(find(name).is_some());
        let fact = BTreeMap::from([(Source::Default, value)]);
        self.values.write().insert(name, fact);
    }

    /// A number that rises whenever values have changed after the start.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The database directory, if there is one.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// The value in canonical form.
    pub fn value(&self, param: &Param) -> String {
        let values = self.values.read();
        let in_effect = values.get(param.name).and_then(|of| of.last_key_value());
        in_effect.map_or_else(|| param.default.to_string(), |(_, value)| value.clone())
    }

    pub fn source(&self, param: &Param) -> Source {
        let values = self.values.read();
        let in_effect = values.get(param.name).and_then(|of| of.last_key_value());
        in_effect.map_or(Source::Default, |(source, _)| *source)
    }

    /// A number, in the parameter's base unit. The parameter must exist and be one of numbers.
    pub fn int(&self, name: &str) -> i64 {
        let param = find(name).filter(|p| matches!(p.kind, Kind::Int { .. }));
        let value = param.and_then(|p| self.value(p).parse().ok());
        value.unwrap_or_else(|| panic!("parameter {name} is not a number"))
    }

    /// A switch. The parameter must exist and be one.
    pub fn is_on(&self, name: &str) -> bool {
        let param = find(name).filter(|p| matches!(p.kind, Kind::Bool));
        param
            .map(|p| self.value(p) == "on")
            .unwrap_or_else(|| panic!("parameter {name} is not a switch"))
    }

    /// A text. The parameter must exist.
    pub fn text(&self, name: &str) -> String {
        find(name)
            .map(|p| self.value(p))
            .unwrap_or_else(|| panic!("there is no parameter {name}"))
    }

    /// ALTER SYSTEM SET, or RESET with `None`: durable before it returns. Parameters of the system take effect, and those of sessions for new ones.
    pub fn alter_system(&self, name: &str, value: Option<&str>) -> Result<()> {
        let param = super::get(name)?;
        if param.context == Context::Internal {
            return Err(Error::new(
                "55P02",
                format!("parameter \"{}\" cannot be changed", param.name),
            ));
        }
        let value = value.map(|text| param.parse(text)).transpose()?;
        if let Some(value) = value.as_deref().filter(|_| !takes_effect(param)) {
            self.check_next_start(param, value)?;
        }
        self.change_auto_file(|lines, values| {
            match &value {
                Some(value) => lines.insert(param.name.to_string(), value.clone()),
                None => lines.remove(param.name),
            };
            if takes_effect(param) {
                let of_param = values.entry(param.name).or_default();
                match value {
                    Some(value) => of_param.insert(Source::AlterSystem, value),
                    None => of_param.remove(&Source::AlterSystem),
                };
            }
        })
    }

    /// Refuses a value with which the next start would fail: no server would be there to take it
    /// back. If that start fails whatever the value is, the value is not to blame.
    fn check_next_start(&self, param: &'static Param, value: &str) -> Result<()> {
        let Some(check) = self.start_check.get() else {
            return Ok(());
        };
        let next = self.as_of_next_start()?;
        // The next start may come without the flag that gives the parameter now.
        let mut values = next.values.write();
        values
            .entry(param.name)
            .or_default()
            .remove(&Source::CommandLine);
        drop(values);
        if check(&next).is_err() {
            return Ok(());
        }
        let mut values = next.values.write();
        let of_param = values.entry(param.name).or_default();
        of_param.insert(Source::AlterSystem, value.to_string());
        drop(values);
        check(&next).map_err(|why| {
            let message = format!(
                "invalid value for parameter \"{}\": \"{value}\"",
                param.name
            );
            let hint = "Nothing was changed: no instance would start with this value.";
            Error::new("22023", message).detail(why).hint(hint)
        })
    }

    /// The parameters as the next start finds them, if it has the flags of this one.
    fn as_of_next_start(&self) -> Result<Instance> {
        let next = Instance::new(self.dir.as_deref());
        *next.values.write() = self.values.read().clone();
        next.load_auto_file()
            .map_err(|e| Error::new("F0000", e.to_string()))?;
        Ok(next)
    }

    /// ALTER SYSTEM RESET ALL: nothing is left of any ALTER SYSTEM SET.
    pub fn alter_system_reset_all(&self) -> Result<()> {
        self.change_auto_file(|lines, values| {
            lines.clear();
            for (name, of_param) in values.iter_mut() {
                if find(name).is_some_and(takes_effect) {
                    of_param.remove(&Source::AlterSystem);
                }
            }
        })
    }

    /// Changes the lines of the file, and the values in effect once the file is written.
    fn change_auto_file(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, String>, &mut Values),
    ) -> Result<()> {
        let dir = self
            .dir
            .as_deref()
            .ok_or_else(|| Error::unsupported("ALTER SYSTEM without a database directory"))?;
        let mut values = self.values.write();
        let failed = |e: std::io::Error| {
            Error::new(
                "58030",
                format!("could not write {}: {e}", dir.join(AUTO_FILE).display()),
            )
        };
        let mut lines = read_auto_file(dir).map_err(failed)?;
        let mut changed = values.clone();
        change(&mut lines, &mut changed);
        write_auto_file(dir, &lines).map_err(failed)?;
        *values = changed;
        self.changes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Takes over what ALTER SYSTEM SET has changed since the last call, in whichever process of the database: parameters of the system, and those of
    /// sessions for new ones. False if the file is as it was. A file that cannot be taken changes nothing, and is an error once.
    ///
    /// The file is read without the lock of the values, so an ALTER SYSTEM SET of this process may come between reading and taking over. Its value
    /// then comes back with the next call, which sees that the file has changed again.
    pub fn follow_auto_file(&self) -> std::result::Result<bool, ParamError> {
        let Some(dir) = self.dir.as_deref() else {
            return Ok(false);
        };
        let place = dir.join(AUTO_FILE).display().to_string();
        let failed = |e: std::io::Error| ParamError::Invalid {
            place: place.clone(),
            message: e.to_string(),
        };
        let mut seen = self.seen.lock();
        let stamp = stamp(dir).map_err(failed)?;
        if *seen == stamp {
            return Ok(false);
        }
        *seen = stamp;
        let lines = read_auto_file(dir).map_err(failed)?;
        let settings = lines
            .iter()
            .map(|(name, value)| checked(name, value, &place))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let mut values = self.values.write();
        for of_param in values
            .iter_mut()
            .filter(|(name, _)| find(name).is_some_and(takes_effect))
        {
            of_param.1.remove(&Source::AlterSystem);
        }
        for (param, value) in settings {
            if takes_effect(param) {
                let of_param = values.entry(param.name).or_default();
                of_param.insert(Source::AlterSystem, value);
            }
        }
        self.changes.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// Takes what ALTER SYSTEM SET has left in the database directory.
    pub fn load_auto_file(&self) -> std::result::Result<(), ParamError> {
        let Some(dir) = self.dir.as_deref() else {
            return Ok(());
        };
        let place = dir.join(AUTO_FILE).display().to_string();
        let lines = read_auto_file(dir).map_err(|e| ParamError::Invalid {
            place: place.clone(),
            message: e.to_string(),
        })?;
        lines
            .iter()
            .try_for_each(|(name, value)| self.set(name, value, Source::AlterSystem, &place))
    }
}

/// Whether ALTER SYSTEM SET of this parameter takes effect before the next start.
fn takes_effect(param: &Param) -> bool {
    matches!(
        param.context,
        Context::System | Context::Superuser | Context::Session
    )
}

/// The parameter of that name, and the value in canonical form.
fn checked(
    name: &str,
    value: &str,
    place: &str,
) -> std::result::Result<(&'static Param, String), ParamError> {
    let Some(param) = find(name) else {
        return Err(ParamError::Unknown {
            place: place.into(),
            name: name.into(),
        });
    };
    if param.context == Context::Internal {
        return Err(ParamError::Internal {
            place: place.into(),
            name: param.name.into(),
        });
    }
    let value = param.parse(value).map_err(|e| ParamError::Invalid {
        place: place.into(),
        message: e.message().into(),
    })?;
    Ok((param, value))
}

/// None if there is no file.
fn stamp(dir: &Path) -> std::io::Result<Option<Stamp>> {
    match std::fs::metadata(dir.join(AUTO_FILE)) {
        Ok(file) => Ok(Some(Stamp {
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        })),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_auto_file(dir: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let text = match std::fs::read_to_string(dir.join(AUTO_FILE)) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let wrong = |line: &str| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("not a setting: {line}"),
        )
    };
    let settings = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    settings
        .map(|line| {
            let (name, value) = line.split_once('=').ok_or_else(|| wrong(line))?;
            let value = value
                .trim()
                .strip_prefix('"')
                .and_then(|v| v.strip_suffix('"'))
                .ok_or_else(|| wrong(line))?;
            Ok((name.trim().to_string(), unescape(value)))
        })
        .collect()
}

/// Replaces the file as a whole: a crash leaves the old or the new one.
fn write_auto_file(dir: &Path, lines: &BTreeMap<String, String>) -> std::io::Result<()> {
    let (path, new) = (dir.join(AUTO_FILE), dir.join(format!("{AUTO_FILE}.new")));
    let mut file = std::fs::File::create(&new)?;
    writeln!(
        file,
        "# Written by ALTER SYSTEM SET; overrides {CONFIG_FILE}."
    )?;
    for (name, value) in lines {
        writeln!(
            file,
            "{name} = \"{}\"",
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        )?;
    }
    file.sync_all()?;
    std::fs::rename(&new, &path)?;
    std::fs::File::open(dir)?.sync_all()
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (c, false) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precedence_and_errors_name_the_culprit() {
        let values = Instance::new(None);
        values
            .set("Buffer_Cache_Size", "1GB", Source::CommandLine, "--set")
            .unwrap();
        values
            .set("buffer_cache_size", "2GB", Source::ConfigFile, "braid.toml")
            .unwrap();
        assert_eq!(values.int("buffer_cache_size"), 1 << 30);
        let unknown = values
            .set("bufer_cache", "1", Source::ConfigFile, "x/braid.toml")
            .unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "x/braid.toml: there is no parameter \"bufer_cache\""
        );
        assert!(
            values
                .set("redo_files", "1", Source::ConfigFile, "f")
                .unwrap_err()
                .to_string()
                .contains("valid range")
        );
        assert!(
            values
                .set("block_size", "1", Source::ConfigFile, "f")
                .is_err()
        );
    }

    #[test]
    fn alter_system_reset_all_leaves_what_other_sources_give() {
        let dir = std::env::temp_dir().join(format!("braid-reset-all-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [here, elsewhere] = [(); 2].map(|()| Instance::new(Some(&dir)));
        here.set("log_level", "warn", Source::ConfigFile, "f")
            .unwrap();
        for (name, value) in [
            ("log_level", "debug"),
            ("work_mem", "1MB"),
            ("undo_cap", "1GB"),
        ] {
            here.alter_system(name, Some(value)).unwrap();
        }
        assert!(elsewhere.follow_auto_file().unwrap());
        here.alter_system_reset_all().unwrap();
        assert!(elsewhere.follow_auto_file().unwrap());
        for of in [&here, &elsewhere] {
            assert_eq!(of.int("work_mem"), 65536);
        }
        assert_eq!(
            [&here, &elsewhere].map(|of| of.text("log_level")),
            ["warn", "info"]
        );
        let next_start = Instance::new(Some(&dir));
        next_start.load_auto_file().unwrap();
        assert_eq!(next_start.int("undo_cap"), 4 << 30);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn alter_system_is_followed_by_other_processes() {
        let dir = std::env::temp_dir().join(format!("braid-follow-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [here, elsewhere, flagged] = [(); 3].map(|()| Instance::new(Some(&dir)));
        let config = |of: &Instance| of.set("log_level", "warn", Source::ConfigFile, "f");
        config(&elsewhere).unwrap();
        flagged
            .set("log_level", "error", Source::CommandLine, "--set")
            .unwrap();
        assert!(!elsewhere.follow_auto_file().unwrap(), "there is no file");
        here.alter_system("log_level", Some("DEBUG")).unwrap();
        here.alter_system("work_mem", Some("1MB")).unwrap();
        here.alter_system("undo_cap", Some("1GB")).unwrap();
        for of in [&elsewhere, &flagged] {
            assert!(of.follow_auto_file().unwrap());
            assert!(!of.follow_auto_file().unwrap(), "it is as it was");
            // What needs a restart does not follow.
            assert_eq!((of.int("work_mem"), of.int("undo_cap")), (1024, 4 << 30));
        }
        let levels = || [&here, &elsewhere, &flagged].map(|of| of.text("log_level"));
        assert_eq!(levels(), ["debug", "debug", "error"]);

        std::fs::write(dir.join(AUTO_FILE), "log_level = \"loud\"\n").unwrap();
        let wrong = elsewhere.follow_auto_file().unwrap_err().to_string();
        assert!(
            wrong.contains(AUTO_FILE) && wrong.contains("loud"),
            "{wrong}"
        );
        assert!(!elsewhere.follow_auto_file().unwrap(), "an error once");
        assert_eq!(levels(), ["debug", "debug", "error"]);
        std::fs::write(dir.join(AUTO_FILE), "").unwrap();
        assert!(elsewhere.follow_auto_file().unwrap());
        here.alter_system("log_level", None).unwrap();
        assert_eq!(levels(), ["info", "warn", "error"]);
        assert_eq!(elsewhere.int("work_mem"), 65_536);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn alter_system_is_found_at_the_next_start() {
        let dir = std::env::temp_dir().join(format!("braid-params-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let values = Instance::new(Some(&dir));
        values
            .alter_system("search_path", Some("a\"\\\nb"))
            .unwrap();
        values
            .alter_system("buffer_cache_size", Some("512MB"))
            .unwrap();
        // What needs a restart is not in effect yet, what does not is.
        assert_eq!(values.int("buffer_cache_size"), 256 << 20);
        assert_eq!(values.text("search_path"), "a\"\\\nb");
        let next = Instance::new(Some(&dir));
        next.load_auto_file().unwrap();
        assert_eq!(
            (next.int("buffer_cache_size"), next.text("search_path")),
            (512 << 20, "a\"\\\nb".to_string())
        );
        next.alter_system("buffer_cache_size", None).unwrap();
        let last = Instance::new(Some(&dir));
        last.load_auto_file().unwrap();
        assert_eq!(last.int("buffer_cache_size"), 256 << 20);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
