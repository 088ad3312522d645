//! A session's settings over the instance's: SET, SET LOCAL, RESET, SHOW.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use charset::Encoding;

use super::layers::{Layers, Restored};
use super::logged::Logging;
use super::modes::TransactionModes;
use wait::timeline::Wanted;

use crate::error::{Error, Result};
use crate::params::{self, Context, Instance, Param};
use crate::parse::backslashes::Backslashes;
use crate::parse::transaction::IsolationLevel;
use crate::pgtype::styles::{self, IntervalStyle};
use crate::pgtype::zone::TimeZone;
use crate::pgtype::{IoSettings, Objects};

pub struct Settings {
    instance: Arc<Instance>,
    /// This session's values, by lower-case name; custom ones (`app.user`) have a dot.
    own: BTreeMap<String, String>,
    /// Those of the start packet, to which RESET returns.
    initial: BTreeMap<String, String>,
    /// Those of the session's role and of the database, where the start packet says nothing.
    defaults: BTreeMap<String, String>,
    /// Custom names that have been set at some time. Without a value they are empty, not unknown.
    custom: BTreeSet<String>,
    /// What the levels of the transaction have changed.
    layers: Layers,
    /// Modes of the running transaction.
    modes: TransactionModes,
    /// The modes in which each level of the transaction began, to which its end returns.
    modes_before: Vec<TransactionModes>,
    /// Values that the client was last told.
    told: BTreeMap<&'static str, String>,
    hot: Hot,
}

/// Parameters that RESET ALL leaves alone.
const KEPT_BY_RESET_ALL: [&str; 2] = ["role", "session_authorization"];

/// Settings that every transaction or statement asks for, ready for use.
#[derive(Clone, Copy, Default)]
pub struct Hot {
    /// Modes of new transactions.
    pub modes: TransactionModes,
    /// Zero: none.
    pub statement_timeout_ms: u64,
    pub lock_timeout_ms: u64,
    /// Statements that take so long are logged; `None`: none is.
    pub log_min_duration: Option<Duration>,
    /// What else of statements and messages is logged.
    pub logging: Logging,
    pub idle_in_transaction_ms: u64,
    pub idle_session_ms: u64,
    pub work_mem_bytes: usize,
    pub vectorized: Vectorized,
    pub connection: ConnectionSettings,
    /// Level at which the session traces itself; zero: not.
    pub trace_level: u8,
    /// How many times longer than its mean an execution takes whose waits are kept; zero: none is.
    pub timeline_slower: f64,
    /// Whether row-level security keeps to the rows that a role may see; off, what it would keep to
    /// them is an error.
    pub row_security: bool,
    /// How texts of the client are read.
    pub backslashes: Backslashes,
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

/// The parameter `vectorized`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Vectorized {
    /// By a table's size.
    #[default]
    Auto,
    /// Wherever it is possible.
    On,
    Off,
}

impl Hot {
    /// How long a lock is waited for; `None`: for ever.
    pub fn lock_timeout(&self) -> Option<Duration> {
        (self.lock_timeout_ms > 0).then(|| Duration::from_millis(self.lock_timeout_ms))
    }
}

impl Settings {
    pub fn new(instance: &Arc<Instance>) -> Settings {
        let mut settings = Settings {
            instance: instance.clone(),
            own: BTreeMap::new(),
            initial: BTreeMap::new(),
            defaults: BTreeMap::new(),
            custom: BTreeSet::new(),
            layers: Layers::default(),
            modes: TransactionModes::default(),
            modes_before: Vec::new(),
            told: BTreeMap::new(),
            hot: Hot::default(),
        };
        settings.refresh();
        settings
    }

    pub fn hot(&self) -> Hot {
        self.hot
    }

    /// Level at which the session traces itself; zero: not.
    #[inline]
    pub fn trace_level(&self) -> u8 {
        self.hot.trace_level
    }

    fn backslashes(&self) -> Backslashes {
        let in_plain = self.get("standard_conforming_strings") == "off";
        Backslashes {
            in_plain,
            warns: in_plain && self.get("escape_string_warning") == "on",
            // No encoding that a client can have here hides a quote in a character.
            no_quotes: self.get("backslash_quote") == "off",
        }
    }

    /// After every change of a value.
    fn refresh(&mut self) {
        self.hot = Hot {
            modes: TransactionModes {
                isolation: IsolationLevel::named(&self.get("default_transaction_isolation"))
                    .unwrap_or_default(),
                read_only: self.get("default_transaction_read_only") == "on",
                deferrable: self.get("default_transaction_deferrable") == "on",
            },
            statement_timeout_ms: self.milliseconds("statement_timeout"),
            lock_timeout_ms: self.milliseconds("lock_timeout"),
            log_min_duration: self
                .get("log_min_duration_statement")
                .parse()
                .ok()
                .map(Duration::from_millis),
            logging: Logging::of(self),
            idle_in_transaction_ms: self.milliseconds("idle_in_transaction_session_timeout"),
            idle_session_ms: self.milliseconds("idle_session_timeout"),
            backslashes: self.backslashes(),
            work_mem_bytes: self.kilobytes("work_mem"),
            vectorized: match self.get("vectorized").as_str() {
                "on" => Vectorized::On,
                "off" => Vectorized::Off,
                _ => Vectorized::Auto,
            },
            connection: ConnectionSettings {
                check_interval_ms: self.milliseconds("client_connection_check_interval"),
                keepalives_idle_s: self.number("tcp_keepalives_idle"),
                keepalives_interval_s: self.number("tcp_keepalives_interval"),
                keepalives_count: self.number("tcp_keepalives_count"),
                user_timeout_ms: self.number("tcp_user_timeout"),
            },
            trace_level: match self.get("sql_trace").as_str() {
                "on" => self.number("sql_trace_level") as u8,
                _ => 0,
            },
            timeline_slower: self.get("wait_timeline_slower").parse().unwrap_or(0.0),
            row_security: self.get("row_security") != "off",
        };
        super::timed::set(Wanted::Setting, self.get("wait_timeline") == "on");
        super::timed::set(Wanted::Rule, self.hot.timeline_slower > 0.0);
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

    /// Entries of the lists that ANALYZE makes of a column's values.
    pub fn statistics_target(&self) -> usize {
        self.number("default_statistics_target") as usize
    }

    /// In bytes.
    pub fn kilobytes(&self, name: &str) -> usize {
        let kilobytes: usize = self.get(name).parse().unwrap_or(0);
        kilobytes.saturating_mul(1 << 10)
    }

    /// The value as SHOW gives it.
    pub fn show(&self, name: &str) -> Result<String> {
        if name.contains('.') {
            return match self.own_value(name) {
                Some(own) => Ok(own.clone()),
                None if self.custom.contains(name) => Ok(String::new()),
                None => Err(unknown(name)),
            };
        }
        let param = params::get(name)?;
        Ok(param.show(&self.value(param)))
    }

    pub fn value(&self, param: &Param) -> String {
        if let Some(mode) = self.modes().value(param.name) {
            return mode.to_string();
        }
        match self.own_value(&param.name.to_lowercase()) {
            Some(own) => own.clone(),
            None => self.instance.value(param),
        }
    }

    fn own_value(&self, key: &str) -> Option<&String> {
        let own = self.own.get(key).or_else(|| self.initial.get(key));
        own.or_else(|| self.defaults.get(key))
    }

    pub fn get(&self, name: &str) -> String {
        params::find(name)
            .map(|p| self.value(p))
            .unwrap_or_default()
    }

    /// Modes of the running transaction, or else of the next one.
    pub fn modes(&self) -> TransactionModes {
        match self.layers.depth() {
            0 => self.hot.modes,
            _ => self.modes,
        }
    }

    pub fn set_modes(&mut self, modes: TransactionModes) {
        self.modes = modes;
    }

    /// Whether a savepoint is open.
    pub fn is_nested(&self) -> bool {
        self.layers.depth() > 1
    }

    /// Modes of the transaction that follows by AND CHAIN. A rollback forgets what savepoints have
    /// changed.
    pub fn chained_modes(&self, committed: bool) -> TransactionModes {
        match self.modes_before.get(1) {
            Some(outermost) if !committed => *outermost,
            _ => self.modes,
        }
    }

    /// A new value of a parameter as it is kept.
    fn accepted(&self, name: &str, value: &str) -> Result<String> {
        let value = accepted(name, value)?;
        if !name.eq_ignore_ascii_case("DateStyle") {
            return Ok(value);
        }
        let reset = match self.initial.get("datestyle") {
            Some(initial) => initial.clone(),
            None => self.instance.value(params::get(name)?),
        };
        styles::read_date_style(&value, &self.get(name), &reset)
    }

    /// SET, or RESET with `None`, of what is no mode of the transaction.
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        let key = name.to_lowercase();
        let value = value.map(|v| self.accepted(name, v)).transpose()?;
        match key.contains('.') {
            true => {
                check_custom_name(name)?;
                self.custom.insert(key.clone());
            }
            false => params::get(name)?.check_settable()?,
        }
        let before = match value {
            Some(v) => self.own.insert(key.clone(), v),
            None => self.own.remove(&key),
        };
        self.layers.changing(&key, before, local);
        self.refresh();
        Ok(())
    }

    /// Values of the start packet: unknown names are errors, as PostgreSQL has it.
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<()> {
        let value = self.accepted(name, value)?;
        self.initial.insert(name.to_lowercase(), value);
        self.refresh();
        Ok(())
    }

    /// Values of the session's role and of the database. One that is none any more has no effect,
    /// as in PostgreSQL.
    pub fn set_defaults(&mut self, values: Vec<(String, String)>) {
        for (name, value) in values {
            if let Ok(value) = accepted(&name, &value) {
                self.defaults.insert(name.to_lowercase(), value);
            }
        }
        self.refresh();
    }

    /// Refuses a value that a parameter cannot have.
    pub fn accept(name: &str, value: &str) -> Result<()> {
        Settings::check_name(name)?;
        accepted(name, value).map(drop)
    }

    /// Refuses a name that is no parameter's.
    pub fn check_name(name: &str) -> Result<()> {
        match name.contains('.') {
            true => check_custom_name(name),
            false => params::get(name)?.check_settable(),
        }
    }

    /// A call begins of a function that sets parameters.
    pub fn open_call(&mut self) {
        self.open_level(self.modes);
    }

    /// It ends: what it and SET LOCAL in it have set is as before, but what SET has set stays.
    pub fn close_call(&mut self, kept: bool) {
        if let Some(modes) = self.modes_before.pop()
            && !kept
        {
            self.modes = modes;
        }
        let restored = self.layers.close_call(kept);
        self.restore(restored);
    }

    /// States a fact of this session, whatever the parameter's context.
    pub fn state(&mut self, name: &str, value: &str) {
        debug_assert!(params::find(name).is_some());
        self.initial.insert(name.to_string(), value.to_string());
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        let own = self.own.keys();
        let names: Vec<String> = own
            .filter(|name| !KEPT_BY_RESET_ALL.contains(&name.as_str()))
            .cloned()
            .collect();
        for name in names {
            let before = self.own.remove(&name);
            self.layers.changing(&name, before, false);
        }
        self.refresh();
    }

    /// A transaction begins in these modes, or, within it, a savepoint.
    pub fn open_level(&mut self, modes: TransactionModes) {
        self.layers.open();
        self.modes = modes;
        self.modes_before.push(modes);
    }

    /// The innermost level ends: it is released or committed, or rolled back. True if parameters
    /// have other values now.
    pub fn close_level(&mut self, kept: bool) -> bool {
        if let Some(modes) = self.modes_before.pop() {
            self.modes = modes;
        }
        let restored = self.layers.close(kept);
        self.restore(restored)
    }

    /// Undoes what the innermost level has changed. True if parameters have other values now.
    pub fn undo_level(&mut self) -> bool {
        if let Some(modes) = self.modes_before.last() {
            self.modes = *modes;
        }
        let restored = self.layers.undo();
        self.restore(restored)
    }

    /// Open levels: the transaction and its savepoints.
    pub fn levels(&self) -> usize {
        self.layers.depth()
    }

    fn restore(&mut self, restored: Vec<Restored>) -> bool {
        if restored.is_empty() {
            return false;
        }
        for (name, value) in restored {
            match value {
                Some(v) => self.own.insert(name, v),
                None => self.own.remove(&name),
            };
        }
        self.refresh();
        true
    }

    /// All parameters with their values in their own units, for SHOW ALL and pg_settings.
    pub fn all(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        params::PARAMS.iter().map(|p| (p, self.value(p)))
    }

    /// Parameters of which clients are told, with values that this client has not been told yet.
    pub fn news(&mut self) -> Vec<(String, String)> {
        let mut news = Vec::new();
        for param in params::PARAMS.iter().filter(|p| p.reported) {
            let value = self.value(param);
            if self.told.get(param.name) != Some(&value) {
                self.told.insert(param.name, value.clone());
                news.push((param.name.to_string(), value));
            }
        }
        news
    }

    /// What text forms of values depend on.
    pub fn io(&self, now_micros: i64, objects: Objects) -> Result<IoSettings> {
        let zone = self.get("TimeZone");
        let (date_style, date_order) = styles::known_date_style(&self.get("DateStyle"));
        Ok(IoSettings {
            time_zone: TimeZone::parse(&zone).ok_or_else(|| bad_value("TimeZone", &zone))?,
            date_order,
            date_style,
            interval_style: IntervalStyle::named(&self.get("IntervalStyle")),
            bytea_escape: self.get("bytea_output") == "escape",
            extra_float_digits: self.get("extra_float_digits").parse().unwrap_or(1),
            now_micros,
            encoding: Encoding::find(&self.get("client_encoding")).unwrap_or_default(),
            objects,
        })
    }
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
        TimeZone::Posix(_) => value.trim().to_ascii_uppercase(),
        zone => zone.name(),
    }
}

/// The value of a parameter as it is kept.
fn accepted(name: &str, value: &str) -> Result<String> {
    if name.contains('.') {
        return Ok(value.to_string());
    }
    let param = params::get(name)?;
    param.check_settable()?;
    checked(param, param.parse(value)?)
}

/// Custom parameters are named by identifiers with dots between them.
fn check_custom_name(name: &str) -> Result<()> {
    let is_identifier = |part: &str| {
        let begins = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
        part.starts_with(begins)
            && part
                .chars()
                .all(|c| begins(c) || c.is_ascii_digit() || c == '$')
    };
    if name.split('.').all(is_identifier) {
        return Ok(());
    }
    let message = format!("invalid configuration parameter name \"{name}\"");
    let detail = "Custom parameter names must be two or more simple identifiers separated by dots.";
    Err(Error::new("42602", message).detail(detail))
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
    debug_assert!(matches!(
        param.context,
        Context::Superuser | Context::Session
    ));
    match param.name {
        "TimeZone" if TimeZone::parse(value).is_none() => Err(bad_value("TimeZone", value)),
        "default_transaction_isolation" => {
            IsolationLevel::named(value).map_or(Ok(()), IsolationLevel::check)
        }
        _ => Ok(()),
    }
}
