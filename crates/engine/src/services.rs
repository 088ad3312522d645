//! Services: names under which applications connect. Each service has instances that it prefers,
//! and instances that take over.
//!
//! The definitions are in a file beside the control file. Every instance reads it, and `braid
//! service` changes it. Where a service runs follows from its definition and from who is up, so
//! every instance computes the same.
//!
//! ```text
//! file `services`, a line for each, in the order of names:
//! NAME preferred 1,2 available 3
//! ```
//!
//! **Invariants.**
//! - The process that has locked `services.lock` replaces the file as a whole. So a reader sees
//!   either the old or the new definitions.
//! - A service runs on its preferred instances that are up. For each preferred instance that is not
//!   up, it also runs on one of the available instances that are up, in the order of its list.
//! - [`DEFAULT`] has no line in the file, and runs everywhere.

use crate::cluster::Cluster;
use block::{FileId, InstanceId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The service that every database has.
pub const DEFAULT: &str = "braid";
/// Names that also mean the default service. Clients that know of no other database connect to
/// these databases of PostgreSQL.
const ALSO_DEFAULT: [&str; 2] = ["postgres", "template1"];
/// The longest name of a service. It is that of other names.
pub const MAX_NAME_BYTES: usize = 63;
/// The most services of a database. More are the work of a program that has gone wild. The limit
/// bounds the memory that a reader takes (a line has less than 1 KiB).
pub const MAX_SERVICES: usize = 1000;

const FILE: &str = "services";
const LOCK: &str = "services.lock";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}, line {line}: \"{text}\" does not define a service", .path.display())]
    Line {
        path: PathBuf,
        line: usize,
        text: String,
    },
    #[error(
        "\"{0}\" cannot be a service's name: give 1 to {MAX_NAME_BYTES} letters, digits, _, . or -, but not {DEFAULT}, postgres or template1"
    )]
    Name(String),
    #[error("instances \"{0}\": give numbers from 1 to {max}, each once, and at least one that is preferred", max = FileId::MAX_INSTANCES)]
    Instances(String),
    #[error("there are {MAX_SERVICES} services already, which is the most: remove one first")]
    TooMany,
}

/// The instances on which a service is to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    pub preferred: Vec<InstanceId>,
    pub available: Vec<InstanceId>,
}

impl Service {
    /// A service from lists like `1,2`.
    pub fn new(preferred: &str, available: &str) -> Result<Service, Error> {
        let wrong = || Error::Instances(format!("{preferred};{available}"));
        let service = Service {
            preferred: numbers(preferred).ok_or_else(wrong)?,
            available: numbers(available).ok_or_else(wrong)?,
        };
        let mut all: Vec<u16> = service.all().map(|k| k.0).collect();
        all.sort_unstable();
        let n = all.len();
        all.dedup();
        match !service.preferred.is_empty() && all.len() == n {
            true => Ok(service),
            false => Err(wrong()),
        }
    }

    fn all(&self) -> impl Iterator<Item = InstanceId> + '_ {
        self.preferred.iter().chain(&self.available).copied()
    }

    /// The instances on which the service runs as long as the instances in `up` are up.
    pub fn runs_on(&self, up: &[InstanceId]) -> Vec<InstanceId> {
        let is_up = |k: &&InstanceId| up.contains(k);
        let wanted = self.preferred.len();
        let preferred = self.preferred.iter().filter(is_up);
        let instead = self.available.iter().filter(is_up);
        preferred.chain(instead).take(wanted).copied().collect()
    }
}

/// The instances as text, like "1,2"; empty for none.
pub fn list(instances: &[InstanceId]) -> String {
    let numbers: Vec<_> = instances.iter().map(|k| k.0.to_string()).collect();
    numbers.join(",")
}

fn numbers(text: &str) -> Option<Vec<InstanceId>> {
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    let number = |p: &str| {
        let k: u16 = p.parse().ok()?;
        (1..=FileId::MAX_INSTANCES)
            .contains(&k)
            .then_some(InstanceId(k))
    };
    parts.map(number).collect()
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(fits)
        && of_database(name) != DEFAULT
}

/// The services of a database, without the default one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Services(BTreeMap<String, Service>);

impl Services {
    /// Reads the services of the database in a directory. Without a file there are none.
    pub fn read(dir: &Path) -> Result<Services, Error> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Services::default()),
            Err(source) => {
                return Err(Error::Io {
                    what: "read",
                    path,
                    source,
                });
            }
        };
        let mut services = Services::default();
        for (number, line) in text.lines().enumerate() {
            let (name, service) = parse(line).ok_or_else(|| Error::Line {
                path: path.clone(),
                line: number + 1,
                text: line.to_string(),
            })?;
            services.0.insert(name, service);
        }
        Ok(services)
    }

    pub fn get(&self, name: &str) -> Option<&Service> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Service)> {
        self.0.iter().map(|(name, service)| (&**name, service))
    }

    /// The names of the services that run on an instance as long as the instances in `up` are up;
    /// the default one comes first.
    pub fn of_instance(&self, k: InstanceId, up: &[InstanceId]) -> Vec<String> {
        let here = self.iter().filter(|(_, s)| s.runs_on(up).contains(&k));
        std::iter::once(DEFAULT)
            .chain(here.map(|(name, _)| name))
            .map(str::to_string)
            .collect()
    }

    fn text(&self) -> String {
        let line = |(name, s): (&str, &Service)| {
            let (preferred, available) = (list(&s.preferred), list(&s.available));
            format!("{name} preferred {preferred} available {available}\n")
        };
        self.iter().map(line).collect()
    }
}

fn parse(line: &str) -> Option<(String, Service)> {
    let (name, rest) = line.split_once(" preferred ")?;
    let (preferred, available) = rest.split_once(" available ")?;
    let service = Service::new(preferred, available).ok()?;
    is_name(name).then(|| (name.to_string(), service))
}

/// Defines a service, or removes it (`None`), for all instances. Existing connections go on.
/// Returns the former definition.
pub fn define(dir: &Path, name: &str, service: Option<Service>) -> Result<Option<Service>, Error> {
    if !is_name(name) {
        return Err(Error::Name(name.to_string()));
    }
    let io = |what: &'static str, path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::Io { what, path, source }
    };
    let lock = dir.join(LOCK);
    let held = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(io("lock", &lock))?;
    let mut services = Services::read(dir)?;
    let before = match service {
        Some(service) => services.0.insert(name.to_string(), service),
        None => services.0.remove(name),
    };
    if services.0.len() > MAX_SERVICES {
        return Err(Error::TooMany);
    }
    let (path, new) = (dir.join(FILE), dir.join("services.new"));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(services.text().as_bytes())?;
        file.sync_all()
    });
    written.map_err(io("write", &new))?;
    std::fs::rename(&new, &path).map_err(io("replace", &path))?;
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(io("sync", dir))?;
    drop(held);
    Ok(before)
}

/// What an instance tells a connection that asks for a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    Runs,
    /// The service runs on these instances now, and not on this one.
    Elsewhere(Vec<InstanceId>),
    Unknown,
}

/// The service that the name of a database in a client's startup packet asks for.
pub fn of_database(name: &str) -> &str {
    match ALSO_DEFAULT.contains(&name) {
        true => DEFAULT,
        false => name,
    }
}

/// How a service stands on an instance of the database in a directory. `cluster` is that instance
/// among others.
pub fn standing(
    dir: &Path,
    me: InstanceId,
    cluster: Option<&Cluster>,
    name: &str,
) -> Result<Standing, Error> {
    if of_database(name) == DEFAULT {
        return Ok(Standing::Runs);
    }
    let services = Services::read(dir)?;
    let Some(service) = services.get(name) else {
        return Ok(Standing::Unknown);
    };
    let on = service.runs_on(&up(me, cluster));
    Ok(match on.contains(&me) {
        true => Standing::Runs,
        false => Standing::Elsewhere(on),
    })
}

/// The instances that are up, as an instance sees it.
pub fn up(me: InstanceId, cluster: Option<&Cluster>) -> Vec<InstanceId> {
    match cluster {
        Some(cluster) => cluster.members().numbers(),
        None => vec![me],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u16]) -> Vec<InstanceId> {
        numbers.iter().copied().map(InstanceId).collect()
    }

    #[test]
    fn who_is_preferred_runs_it_and_others_take_over_one_by_one() {
        let service = Service::new("2,1", "4, 3").unwrap();
        for (up, on) in [
            (&[1, 2, 3, 4][..], &[2, 1][..]),
            (&[1, 3, 4], &[1, 4]),
            (&[1, 3], &[1, 3]),
            (&[3, 4], &[4, 3]),
            (&[3], &[3]),
            (&[2, 5], &[2]),
            (&[5], &[]),
        ] {
            assert_eq!(service.runs_on(&ids(up)), ids(on), "{up:?}");
        }
        let alone = Service::new("1", "").unwrap();
        assert!(alone.runs_on(&ids(&[2, 3])).is_empty());
    }

    #[test]
    fn what_is_no_service_is_refused() {
        for (preferred, available) in [
            ("", "1"),
            ("1", "1"),
            ("1,1", ""),
            ("0", ""),
            ("1", "x"),
            ("101", ""),
        ] {
            let made = Service::new(preferred, available);
            assert!(made.is_err(), "{preferred} {available}");
        }
        let dir = std::env::temp_dir().join(format!("braid-services-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let service = Service::new("1", "2").unwrap();
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", DEFAULT, "postgres", "a b", "a\nb", &long] {
            let defined = define(&dir, name, Some(service.clone()));
            assert!(matches!(defined, Err(Error::Name(_))), "{name}");
        }
        std::fs::write(dir.join(FILE), "oltp preferred 1 available\n").unwrap();
        let e = Services::read(&dir).unwrap_err().to_string();
        assert!(e.contains("line 1") && e.contains("oltp"), "{e}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn services_are_defined_changed_and_taken_away() {
        let dir = std::env::temp_dir().join(format!("braid-service-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(Services::read(&dir).unwrap(), Services::default());
        let (one, two) = (
            Service::new("1", "").unwrap(),
            Service::new("2,3", "1").unwrap(),
        );
        assert_eq!(define(&dir, "b", Some(one.clone())).unwrap(), None);
        assert_eq!(define(&dir, "a", Some(one.clone())).unwrap(), None);
        assert_eq!(define(&dir, "a", Some(two.clone())).unwrap(), Some(one));
        let services = Services::read(&dir).unwrap();
        assert_eq!(services.get("a"), Some(&two));
        let names = |k| services.of_instance(InstanceId(k), &ids(&[1, 2, 3]));
        assert_eq!(names(1), [DEFAULT, "b"]);
        assert_eq!(names(3), [DEFAULT, "a"]);
        let standing = |name| standing(&dir, InstanceId(2), None, name).unwrap();
        assert_eq!(standing("a"), Standing::Runs);
        assert_eq!(standing("b"), Standing::Elsewhere(Vec::new()));
        assert_eq!(standing("c"), Standing::Unknown);
        define(&dir, "a", None).unwrap();
        assert!(Services::read(&dir).unwrap().get("a").is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
