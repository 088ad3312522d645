//! A session's settings over the instance's: SET, SET LOCAL, RESET, SHOW.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use charset::Encoding;

use crate::error::{Error, Result};
use crate::params::{self, Context, Instance, Param};
use crate::pgtype::zone::TimeZone;
use crate::pgtype::{DateOrder, IoSettings};

pub struct Settings {
    instance: Arc<Instance>,
    /// This session's values, by lower-case name; custom ones (`app.user`) have a dot.
    own: BTreeMap<String, String>,
    /// Those of the start packet, to which RESET returns.
    initial: BTreeMap<String, String>,
    /// What to restore when the transaction ends: the value before, if there was one. `local` ones always, others
    /// only if it is rolled back.
    undo: Vec<Undo>,
    hot: Hot,
}

/// Settings that every transaction or statement asks for, ready for use.
#[derive(Clone, Copy, Default)]
pub struct Hot {
    pub repeatable_read: bool,
    pub read_only: bool,
    /// Zero: none.
    pub statement_timeout_ms: u64,
    pub lock_timeout_ms: u64,
    pub idle_in_transaction_ms: u64,
    pub idle_session_ms: u64,
    pub work_mem_bytes: usize,
    pub connection: ConnectionSettings,
}

/// What a session wants of its client's connection. Zero: no check and no timeout; of keepalives,
/// what the system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionSettings {
    /// How often is looked whether the client is still there, while a statement runs.
    pub check_interval_ms: u64,
    pub keepalives_idle_s: u32,
    pub keepalives_interval_s: u32,
    pub keepalives_count: u32,
    pub user_timeout_ms: u32,
}

impl Hot {
    /// How long a lock is waited for; `None`: for ever.
    pub fn lock_timeout(&self) -> Option<Duration> {
        (self.lock_timeout_ms > 0).then(|| Duration::from_millis(self.lock_timeout_ms))
    }
}

struct Undo {
    name: String,
    before: Option<String>,
    local: bool,
}

impl Settings {
    pub fn new(instance: &Arc<Instance>) -> Settings {
        let mut settings = Settings {
            instance: instance.clone(),
            own: BTreeMap::new(),
            initial: BTreeMap::new(),
            undo: Vec::new(),
            hot: Hot::default(),
        };
        settings.refresh();
        settings
    }

    pub fn hot(&self) -> Hot {
        self.hot
    }

    /// After every change of a value.
    fn refresh(&mut self) {
        self.hot = Hot {
            repeatable_read: self.get("default_transaction_isolation") == "repeatable read",
            read_only: self.get("default_transaction_read_only") == "on",
            statement_timeout_ms: self.milliseconds("statement_timeout"),
            lock_timeout_ms: self.milliseconds("lock_timeout"),
            idle_in_transaction_ms: self.milliseconds("idle_in_transaction_session_timeout"),
            idle_session_ms: self.milliseconds("idle_session_timeout"),
            work_mem_bytes: self.kilobytes("work_mem"),
            connection: ConnectionSettings {
                check_interval_ms: self.milliseconds("client_connection_check_interval"),
                keepalives_idle_s: self.number("tcp_keepalives_idle"),
                keepalives_interval_s: self.number("tcp_keepalives_interval"),
                keepalives_count: self.number("tcp_keepalives_count"),
                user_timeout_ms: self.number("tcp_user_timeout"),
            },
        };
        wait::session::set_program(&self.get("application_name"));
    }

    /// Zero: none. Values are checked when they are set.
    fn milliseconds(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    fn number(&self, name: &str) -> u32 {
        self.get(name).parse().unwrap_or(0)
    }

    /// How long another instance may be silent that is asked about its sessions, or has an order
    /// for one.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.milliseconds("gv_view_timeout"))
    }

    /// In bytes.
    pub fn kilobytes(&self, name: &str) -> usize {
        let kilobytes: usize = self.get(name).parse().unwrap_or(0);
        kilobytes.saturating_mul(1 << 10)
    }

    /// The value as SHOW gives it.
    pub fn show(&self, name: &str) -> Result<String> {
        if name.contains('.') {
            let own = self.own_value(name).cloned();
            return own.ok_or_else(|| unknown(name));
        }
        let param = params::get(name)?;
        Ok(param.show(&self.value(param)))
    }

    pub fn value(&self, param: &Param) -> String {
        match self.own_value(&param.name.to_lowercase()) {
            Some(own) => own.clone(),
            None => self.instance.value(param),
        }
    }

    fn own_value(&self, key: &str) -> Option<&String> {
        self.own.get(key).or_else(|| self.initial.get(key))
    }

    pub fn get(&self, name: &str) -> String {
        params::find(name)
            .map(|p| self.value(p))
            .unwrap_or_default()
    }

    /// SET, or RESET with `None`. Returns the parameter if clients are told of its changes.
    pub fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        in_transaction: bool,
    ) -> Result<Option<&'static Param>> {
        let key = name.to_lowercase();
        let mut reported = None;
        let value = if key.contains('.') {
            value.map(str::to_string)
        } else {
            let param = params::get(name)?;
            param.check_settable()?;
            reported = param.reported.then_some(param);
            let parsed = value.map(|v| param.parse(v)).transpose()?;
            parsed.map(|v| checked(param, v)).transpose()?
        };
        let before = match value {
            Some(v) => self.own.insert(key.clone(), v),
            None => self.own.remove(&key),
        };
        if in_transaction {
            self.undo.push(Undo {
                name: key,
                before,
                local,
            });
        }
        self.refresh();
        Ok(reported)
    }

    /// Values of the start packet: unknown names are errors, as PostgreSQL has it.
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<()> {
        self.set(name, Some(value), false, false)?;
        let key = name.to_lowercase();
        if let Some(value) = self.own.remove(&key) {
            self.initial.insert(key, value);
        }
        self.refresh();
        Ok(())
    }

    /// States a fact of this session, whatever the parameter's context.
    pub fn state(&mut self, name: &str, value: &str) {
        debug_assert!(params::find(name).is_some());
        self.initial.insert(name.to_string(), value.to_string());
    }

    /// RESET ALL.
    pub fn reset_all(&mut self, in_transaction: bool) {
        let names: Vec<String> = self.own.keys().cloned().collect();
        for name in names {
            let before = self.own.remove(&name);
            if in_transaction {
                self.undo.push(Undo {
                    name,
                    before,
                    local: false,
                });
            }
        }
        self.refresh();
    }

    /// At the end of a transaction: undoes SET LOCAL, and after a rollback every SET. True if anything changed.
    pub fn end_transaction(&mut self, committed: bool) -> bool {
        let mut changed = false;
        while let Some(undo) = self.undo.pop() {
            if undo.local || !committed {
                changed = true;
                match undo.before {
                    Some(v) => self.own.insert(undo.name, v),
                    None => self.own.remove(&undo.name),
                };
            }
        }
        if changed {
            self.refresh();
        }
        changed
    }

    pub fn undo_mark(&self) -> usize {
        self.undo.len()
    }

    /// ROLLBACK TO: undoes what was set after the savepoint.
    pub fn undo_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some(undo) = self.undo.pop() {
                match undo.before {
                    Some(v) => self.own.insert(undo.name, v),
                    None => self.own.remove(&undo.name),
                };
            }
        }
        self.refresh();
    }

    /// All parameters, for SHOW ALL and pg_settings.
    pub fn all(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        params::PARAMS.iter().map(|p| (p, p.show(&self.value(p))))
    }

    pub fn reported(&self) -> Vec<(String, String)> {
        let reported = params::PARAMS.iter().filter(|p| p.reported);
        reported
            .map(|p| (p.name.to_string(), self.value(p)))
            .collect()
    }

    /// What text forms of values depend on.
    pub fn io(&self, now_micros: i64) -> Result<IoSettings> {
        let zone = self.get("TimeZone");
        let style = self.get("DateStyle").to_uppercase();
        let date_order =
            if style.contains("DMY") || style.contains("EURO") && !style.contains("NON") {
                DateOrder::Dmy
            } else if style.contains("YMD") {
                DateOrder::Ymd
            } else {
                DateOrder::Mdy
            };
        Ok(IoSettings {
            time_zone: TimeZone::parse(&zone).ok_or_else(|| bad_value("TimeZone", &zone))?,
            date_order,
            bytea_escape: self.get("bytea_output") == "escape",
            now_micros,
            encoding: Encoding::find(&self.get("client_encoding")).unwrap_or_default(),
        })
    }
}

/// Words for the order of input and the form of output, of which there is one.
fn date_style(value: &str) -> Result<()> {
    for word in value.split(',').map(str::trim) {
        match word.to_lowercase().as_str() {
            "iso" | "dmy" | "euro" | "european" | "mdy" | "us" | "noneuro" | "noneuropean"
            | "ymd" | "default" => {}
            "sql" | "postgres" | "german" => {
                return Err(Error::unsupported(format!("DateStyle {word}")).hint("Use ISO."));
            }
            _ => {
                return Err(bad_value("DateStyle", value)
                    .detail(format!("Unrecognized key word: \"{word}\".")));
            }
        }
    }
    Ok(())
}

fn unknown(name: &str) -> Error {
    Error::new(
        "42704",
        format!("unrecognized configuration parameter \"{name}\""),
    )
}

fn bad_value(name: &str, value: &str) -> Error {
    Error::new(
        "22023",
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
}

/// A program's name as it is shown: in printable ASCII, with `?` for every other byte.
fn program_name(value: &str) -> String {
    let shown = |b: u8| match b {
        b' '..=b'~' => char::from(b),
        _ => '?',
    };
    value.bytes().map(shown).collect()
}

/// A zone as it is shown: by its own name, or as a fixed offset if hours were given. An abbreviation stays one.
fn zone_name(zone: &TimeZone, value: String) -> String {
    match zone {
        TimeZone::Fixed(_) if value.trim().parse::<f64>().is_err() => value,
        zone => zone.name(),
    }
}

/// The value as it is kept. Refuses one that is well-formed but means something Braid does not do.
fn checked(param: &Param, value: String) -> Result<String> {
    match (param.name, TimeZone::parse(&value)) {
        ("application_name", _) => return Ok(program_name(&value)),
        ("TimeZone", Some(zone)) => return Ok(zone_name(&zone, value)),
        _ => {}
    }
    check(param, &value).map(|()| value)
}

fn check(param: &Param, value: &str) -> Result<()> {
    debug_assert!(param.context == Context::Session);
    match param.name {
        "TimeZone" if TimeZone::parse(value).is_none() => Err(bad_value("TimeZone", value)),
        "DateStyle" => date_style(value),
        "standard_conforming_strings" if value == "off" => {
            Err(Error::unsupported("standard_conforming_strings = off"))
        }
        "default_transaction_isolation" | "transaction_isolation" if value == "serializable" => {
            Err(Error::unsupported("isolation level SERIALIZABLE").hint("Use REPEATABLE READ."))
        }
        _ => Ok(()),
    }
}
