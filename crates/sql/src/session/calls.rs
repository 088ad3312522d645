//! Functions that ask the session or the database.

use block::value::{Datum, DatumRef};

use super::core::{Core, now_micros};
use crate::bind::names;
use crate::dict::acl::Privileges;
use crate::dict::{Relation, Sequence};
use crate::error::{Error, Result};
use crate::expr::func::SessionFunc;
use crate::expr::{Calls, Val, cast};
use crate::orders::Signal;
use crate::params;
use crate::parse::transaction::Mode;
use crate::parse::utility::TableLock;
use crate::pgtype::{IoSettings, array};
use crate::query::analyze::system::tid;
use crate::types::{Element, Reg, SqlType};
use std::sync::Arc;

/// What `version()` says: clients take the beginning for PostgreSQL's version.
const VERSION: &str = concat!("PostgreSQL 15.18 (Braid ", env!("CARGO_PKG_VERSION"), ")");

impl Calls for Core {
    fn subquery(&mut self, number: usize, inputs: Vec<Datum>) -> Result<Val<'static>> {
        self.subquery_value(number, inputs)
    }

    fn user(&mut self, function: crate::expr::func::UserFunc, args: Vec<Datum>) -> Result<Datum> {
        crate::pl::call(self, function.oid, function.types, args)
    }

    fn io(&self) -> &IoSettings {
        &self.io
    }

    fn call(&mut self, func: SessionFunc, args: &[Val<'_>]) -> Result<Val<'static>> {
        use SessionFunc::*;
        Ok(match func {
            Now => Val::Ref(DatumRef::TimestampTz(self.transaction_start)),
            StatementTimestamp => Val::Ref(DatumRef::TimestampTz(self.statement_start)),
            ClockTimestamp => Val::Ref(DatumRef::TimestampTz(now_micros())),
            CurrentDate => Val::Ref(DatumRef::Date(
                self.local_now().div_euclid(86_400_000_000) as i32
            )),
            LocalTimestamp => Val::Ref(DatumRef::Timestamp(self.local_now())),
            Random => Val::Ref(DatumRef::Float8(self.random.share())),
            SetSeed => {
                let seed = match args.first().map(Val::get) {
                    Some(DatumRef::Float8(seed)) => seed,
                    other => return Err(Error::internal(format!("{other:?} as a seed"))),
                };
                self.seed(seed)?;
                void()
            }
            TimeOfDay => Val::text(self.time_of_day()),
            CurrentQuery => match &self.shown {
                Some(text) => Val::text(text.to_string()),
                None => Val::NULL,
            },
            ClientEncoding => Val::text(self.show("client_encoding")?),
            TriggerDepth => Val::int4(self.pl.triggers),
            GenRandomUuid => Val::Own(Datum::Uuid(self.random_uuid()?)),
            NextVal => Val::int8(self.next_value(&SequenceName::new(args)?, args.len() > 1)?),
            CurrVal => Val::int8(self.current_value(&SequenceName::new(args)?)?),
            LastVal => Val::int8(self.last_value()?),
            CurrentOf => Val::int8(self.row_of_cursor(args)?),
            SetVal => Val::int8(self.set_value(args)?),
            Version => Val::text(VERSION.to_string()),
            CurrentUser => Val::text(self.user.clone()),
            SessionUser => Val::text(self.session_user.clone()),
            CurrentDatabase => Val::text(self.database_name.clone()),
            CurrentSchema => {
                let dict = self.dict();
                let mut path = dict.path().iter();
                match path.find(|schema| !self.passes_over(**schema)) {
                    Some(first) => Val::text(dict.schema_name(*first).to_string()),
                    None => Val::Ref(DatumRef::Null),
                }
            }
            BackendPid => Val::int4(self.database.own_pid()),
            CancelBackend => {
                let pid = pid(args)?;
                Val::bool(self.signal(|signal| signal.cancel(pid))?)
            }
            TerminateBackend => {
                let (pid, timeout_ms) = (
                    pid(args)?,
                    if args.len() > 1 { integer(args, 1)? } else { 0 },
                );
                Val::bool(self.signal(|signal| signal.terminate(pid, timeout_ms))?)
            }
            BlockingPids => {
                let cx = crate::views::Context::new(self);
                let pids = crate::views::blocking_pids(&cx, pid(args)?)?;
                for warning in cx.take_warnings() {
                    self.notice("WARNING", "01000", warning);
                }
                pid_array(pids)?
            }
            // Sessions that keep another from a snapshot of SERIALIZABLE READ ONLY DEFERRABLE. There
            // are no such transactions.
            SafeSnapshotBlockingPids => pid_array([])?,
            Notify => {
                let of = |i: usize| match args.get(i).map(Val::get) {
                    Some(DatumRef::Text(t)) => t.to_string(),
                    _ => String::new(),
                };
                self.notify(&of(0), &of(1))?;
                void()
            }
            ListeningChannels => text_array(self.listening_channels())?,
            NotificationUsage => Val::Ref(DatumRef::Float8(self.notification_usage())),
            TraceEnable => {
                let flag = |i: usize, default| match args.get(i).map(Val::get) {
                    Some(DatumRef::Bool(b)) => b,
                    _ => default,
                };
                let level = crate::trace::level_of(flag(2, true), flag(3, false));
                self.trace_other(args, 4, level)?
            }
            TraceDisable => self.trace_other(args, 2, 0)?,
            TimelineEnable => self.trace_other(args, 2, crate::trace::TIMELINE_ON)?,
            TimelineDisable => self.trace_other(args, 2, crate::trace::TIMELINE_OFF)?,
            IsInRecovery => Val::bool(false),
            PostmasterStart => Val::Ref(DatumRef::TimestampTz(self.database.started_micros())),
            TxidCurrent => Val::int8(self.engine.transaction_id()?.0 as i64),
            CurrentSetting => self.current_setting(args)?,
            SetConfig => self.set_config(args)?,
            Sleep => self.sleep(args)?,
            AdvisoryLock {
                shared,
                transaction,
                try_only,
            } => {
                let got = self.engine.advisory_lock(
                    advisory_key(args)?,
                    shared,
                    transaction,
                    try_only,
                )?;
                if try_only { Val::bool(got) } else { void() }
            }
            AdvisoryUnlock { shared } => {
                let held = self.engine.advisory_unlock(advisory_key(args)?, shared);
                if !held {
                    let kind = if shared { "ShareLock" } else { "ExclusiveLock" };
                    self.notice(
                        "WARNING",
                        "01000",
                        format!("you don't own a lock of type {kind}"),
                    );
                }
                Val::bool(held)
            }
            Large(func) => self.large_call(func, args)?,
            Catalog(at) => Val::Own(self.catalog_function(at, args)?),
            AdvisoryUnlockAll => {
                self.engine.advisory_unlock_all();
                void()
            }
        })
    }
}

fn text<'v>(args: &'v [Val<'_>], i: usize) -> Result<&'v str> {
    match args.get(i).map(Val::get) {
        Some(DatumRef::Text(t)) => Ok(t),
        other => Err(Error::internal(format!(
            "argument {} is {other:?}, not text",
            i + 1
        ))),
    }
}

/// A sequence, as an argument names it: in words, or by object id.
enum SequenceName<'v> {
    Text(&'v str),
    Oid(u32),
}

impl SequenceName<'_> {
    fn new<'v>(args: &'v [Val<'_>]) -> Result<SequenceName<'v>> {
        match args.first().map(Val::get) {
            // A number beyond all object ids is that of no sequence.
            Some(DatumRef::Int8(oid)) => Ok(SequenceName::Oid(u32::try_from(oid).unwrap_or(0))),
            _ => text(args, 0).map(SequenceName::Text),
        }
    }
}

fn integer(args: &[Val<'_>], i: usize) -> Result<i64> {
    args.get(i)
        .and_then(|v| cast::integer(v.get()))
        .ok_or_else(|| Error::internal(format!("argument {} is no integer", i + 1)))
}

/// A process id, the first argument.
fn pid(args: &[Val<'_>]) -> Result<i32> {
    // Nobody has one that is none.
    Ok(i32::try_from(integer(args, 0)?).unwrap_or(0))
}

/// One bigint, or two integers, which are another key space.
fn advisory_key(args: &[Val<'_>]) -> Result<engine::AdvisoryKey> {
    Ok(match args.len() {
        1 => engine::AdvisoryKey::One(integer(args, 0)?),
        _ => engine::AdvisoryKey::Two(integer(args, 0)? as i32, integer(args, 1)? as i32),
    })
}

/// A relation's name as text: quoted parts are kept as they are, others folded.
pub fn relation_name(text: &str) -> Result<names::Qualified> {
    let e = crate::parse::expression(text)
        .map_err(|_| Error::new("42602", format!("invalid name syntax: \"{text}\"")))?;
    use sqlparser::ast::Expr;
    match e {
        Expr::Identifier(i) => Ok(names::Qualified::bare(&names::ident(&i))),
        Expr::CompoundIdentifier(path) => match path.as_slice() {
            [schema, name] => Ok(names::Qualified {
                schema: Some(names::ident(schema)),
                name: names::ident(name),
            }),
            _ => Err(Error::new(
                "42602",
                format!("invalid name syntax: \"{text}\""),
            )),
        },
        _ => Err(Error::new(
            "42602",
            format!("invalid name syntax: \"{text}\""),
        )),
    }
}

impl Core {
    /// A function over the catalogs. What it asks is looked up once for a statement of the tree
    /// lane.
    fn catalog_function(&mut self, at: usize, args: &[Val<'_>]) -> Result<Datum> {
        let Some(function) = crate::views::functions::at(at) else {
            return Err(Error::internal("a function that is not there"));
        };
        if function.strict && args.iter().any(Val::is_null) {
            return Ok(Datum::Null);
        }
        let values: Vec<Datum> = args.iter().map(|v| v.clone().into_datum()).collect();
        let context = match self.running.context.take() {
            Some(context) => context,
            None => Box::new(crate::views::Context::new(self)),
        };
        let value = (function.call)(&context, &values);
        for warning in context.take_warnings() {
            self.notice("WARNING", "01000", warning);
        }
        if self.running.is_statement {
            self.running.context = Some(context);
        }
        value
    }

    fn local_now(&self) -> i64 {
        self.transaction_start
            + i64::from(self.io.time_zone.offset_at(self.transaction_start)) * 1_000_000
    }

    /// Switches the trace of the session with this number and serial; the argument at `instance`
    /// names its instance, if it is not this one.
    fn trace_other(
        &mut self,
        args: &[Val<'_>],
        instance: usize,
        level: u8,
    ) -> Result<Val<'static>> {
        let none = || Error::new("22023", "there is no session of such a number");
        let unsigned = |i| -> Result<u32> {
            let number = u32::try_from(integer(args, i)?).ok();
            number.filter(|n| *n > 0).ok_or_else(none)
        };
        let target = crate::orders::Target {
            instance: match args.len() > instance {
                true => u16::try_from(integer(args, instance)?).map_err(|_| none())?,
                false => self.database.engine().instance(),
            },
            sid: unsigned(0)?,
            serial: Some(unsigned(1)?),
        };
        let (by, patience) = (self.authority(), self.settings.patience());
        let outcome = self.database.trace_session(target, by, level, patience)?;
        super::kill::found(&target, outcome)?;
        Ok(void())
    }

    /// Gives an order to a session; what there is to be said of it is told to the client.
    fn signal(&mut self, order: impl FnOnce(&mut Signal<'_>) -> Result<bool>) -> Result<bool> {
        let database = self.database.clone();
        let (by, patience) = (self.authority(), self.settings.patience());
        let mut signal = Signal {
            database: &database,
            by,
            patience,
            warn: &mut |what| self.notice("WARNING", "01000", what),
        };
        order(&mut signal)
    }

    fn random_uuid(&mut self) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        let mut file = std::fs::File::open("/dev/urandom")
            .map_err(|e| Error::internal(format!("/dev/urandom: {e}")))?;
        std::io::Read::read_exact(&mut file, &mut bytes)
            .map_err(|e| Error::internal(format!("/dev/urandom: {e}")))?;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(bytes)
    }

    fn sequence(&self, name: &SequenceName<'_>) -> Result<Arc<Sequence>> {
        let dict = self.dict();
        let name = match name {
            SequenceName::Oid(oid) => {
                let found = dict.sequence_by_oid(*oid).cloned();
                return found.ok_or_else(|| match dict.table_by_oid(*oid) {
                    Some(_) => {
                        let name = crate::views::objects::name(&dict, Reg::Class, *oid);
                        Error::new("42809", format!("\"{name}\" is not a sequence"))
                    }
                    None => Error::new("42P01", format!("relation with OID {oid} does not exist")),
                });
            }
            SequenceName::Text(name) => *name,
        };
        // The usual case first: a plain name in lower case.
        if let Some(s) = dict.sequence(name) {
            return Ok(s.clone());
        }
        let folded = relation_name(name)?;
        self.check_schema_usage(folded.schema.as_deref())?;
        match dict.relation(&folded) {
            Some(crate::dict::Relation::Sequence(s)) => Ok(s),
            Some(_) => Err(Error::new(
                "42809",
                format!("\"{folded}\" is not a sequence"),
            )),
            None => Err(names::no_relation(&folded)),
        }
    }

    /// The sequence as it stays until the transaction ends: nobody drops it, or gives it other parameters.
    fn locked_sequence(&mut self, name: &SequenceName<'_>) -> Result<Arc<Sequence>> {
        loop {
            let sequence = self.sequence(name)?;
            self.lock_table(sequence.oid, TableLock::RowExclusive, false)?;
            let same = |now: &Arc<Sequence>| Arc::ptr_eq(now, &sequence);
            if self.dict().sequence_by_oid(sequence.oid).is_some_and(same) {
                return Ok(sequence);
            }
        }
    }

    fn check_sequence(&self, sequence: &Arc<Sequence>, any: Privileges) -> Result<()> {
        self.check_relation(&Relation::Sequence(sequence.clone()), any)
    }

    /// `unchecked`: for an identity column, for which the privilege on the table is enough.
    fn next_value(&mut self, name: &SequenceName<'_>, unchecked: bool) -> Result<i64> {
        let sequence = self.locked_sequence(name)?;
        if !unchecked {
            self.check_sequence(&sequence, Privileges::USAGE.and(Privileges::UPDATE))?;
        }
        self.refuse_drawing(&sequence, "nextval()")?;
        let value = self
            .engine
            .sequence_next(&sequence.engine())
            .map_err(|e| sequence_error(e, &sequence))?;
        self.drawn.insert(sequence.oid, value);
        self.last_drawn = Some(sequence.oid);
        Ok(value)
    }

    /// Refuses to change a sequence in a read-only transaction, unless it is temporary.
    fn refuse_drawing(&self, sequence: &Sequence, command: &str) -> Result<()> {
        match self.dict().is_temporary(sequence.schema) {
            true => Ok(()),
            false => self.refuse_if_read_only(command),
        }
    }

    fn current_value(&mut self, name: &SequenceName<'_>) -> Result<i64> {
        let sequence = self.sequence(name)?;
        self.check_sequence(&sequence, Privileges::USAGE.and(Privileges::SELECT))?;
        self.drawn.get(&sequence.oid).copied().ok_or_else(|| {
            Error::new(
                "55000",
                format!(
                    "currval of sequence \"{}\" is not yet defined in this session",
                    sequence.name
                ),
            )
        })
    }

    fn last_value(&self) -> Result<i64> {
        let none = || Error::new("55000", "lastval is not yet defined in this session");
        let dict = self.dict();
        // One that was dropped since has no last value.
        let sequence = self.last_drawn.and_then(|oid| dict.sequence_by_oid(oid));
        let sequence = sequence.ok_or_else(none)?;
        self.check_sequence(sequence, Privileges::USAGE.and(Privileges::SELECT))?;
        self.drawn.get(&sequence.oid).copied().ok_or_else(none)
    }

    /// The `ctid` of the row of a table at which a cursor is.
    fn row_of_cursor(&mut self, args: &[Val<'_>]) -> Result<i64> {
        let Some(DatumRef::Text(name)) = args.first().map(Val::get) else {
            return Err(Error::internal("a cursor without a name"));
        };
        let oid = integer(args, 1)?;
        let oid = u32::try_from(oid).map_err(|_| Error::internal("a table without a number"))?;
        let table = self.dict().table_by_oid(oid).cloned();
        let called = table.map_or(String::new(), |t| t.name.clone());
        Ok(tid(self.cursors.current_row(name, oid, &called)?))
    }

    fn set_value(&mut self, args: &[Val<'_>]) -> Result<i64> {
        let sequence = self.locked_sequence(&SequenceName::new(args)?)?;
        self.check_sequence(&sequence, Privileges::UPDATE)?;
        self.refuse_drawing(&sequence, "setval()")?;
        let value = integer(args, 1)?;
        let called = match args.get(2).map(Val::get) {
            Some(DatumRef::Bool(b)) => b,
            _ => true,
        };
        if !(sequence.min..=sequence.max).contains(&value) {
            return Err(Error::new(
                "22003",
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    sequence.name, sequence.min, sequence.max
                ),
            ));
        }
        self.engine
            .sequence_set(&sequence.engine(), value, called)?;
        if called {
            self.drawn.insert(sequence.oid, value);
        }
        Ok(value)
    }

    fn current_setting(&self, args: &[Val<'_>]) -> Result<Val<'static>> {
        let missing_ok = matches!(args.get(1).map(Val::get), Some(DatumRef::Bool(true)));
        match self.show(&text(args, 0)?.to_lowercase()) {
            Ok(value) => Ok(Val::text(value)),
            Err(e) if missing_ok && e.sqlstate() == "42704" => Ok(Val::NULL),
            Err(e) => Err(e),
        }
    }

    /// The value of a parameter as SHOW gives it.
    pub fn show(&self, name: &str) -> Result<String> {
        if let Some(param) = params::find(name) {
            param.check_seen_by(self.authority())?;
        }
        self.settings.show(name)
    }

    /// All parameters that the session's role may see, as SHOW gives them.
    pub fn seen_settings(&self) -> impl Iterator<Item = (&'static params::Param, String)> + '_ {
        let authority = self.authority();
        let all = self.settings.all();
        all.filter(move |(param, _)| param.is_seen_by(authority))
    }

    fn set_config(&mut self, args: &[Val<'_>]) -> Result<Val<'static>> {
        let name = match args.first().map(Val::get) {
            Some(DatumRef::Null) => return Err(Error::new("22004", "SET requires parameter name")),
            _ => text(args, 0)?.to_string(),
        };
        let value = match args.get(1).map(Val::get) {
            Some(DatumRef::Text(t)) => Some(t.to_string()),
            _ => None,
        };
        let local = matches!(args.get(2).map(Val::get), Some(DatumRef::Bool(true)));
        self.set_parameter(&name, value.as_deref(), local)?;
        Ok(Val::text(self.show(&name.to_lowercase())?))
    }

    /// SET in all its forms: the change, what follows from it, and the message to the client.
    pub fn set_parameter(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        if name.eq_ignore_ascii_case("seed") {
            return self.seed(value.and_then(|v| v.parse().ok()).unwrap_or(0.0));
        }
        self.check_may_set(name, value)?;
        if let Some(mode) = mode(name, value)? {
            return match value {
                Some(_) => self.change_mode(mode),
                None => self.reset_mode(mode),
            };
        }
        self.settings.set(name, value, local)?;
        if name.eq_ignore_ascii_case("session_authorization") {
            self.settings.set("role", Some("none"), local)?;
        }
        self.parameters_changed()
    }
}

/// What SET or RESET of a parameter asks of the transaction; `None` if the parameter is no mode of
/// it.
fn mode(name: &str, value: Option<&str>) -> Result<Option<Mode>> {
    let is_mode = |param: &&params::Param| Mode::of_parameter(param.name, param.default).is_some();
    let Some(param) = params::find(name).filter(is_mode) else {
        return Ok(None);
    };
    let value = param.parse(value.unwrap_or(param.default))?;
    Ok(Mode::of_parameter(param.name, &value))
}

fn pid_array(pids: impl IntoIterator<Item = i32>) -> Result<Val<'static>> {
    let element =
        Element::of(SqlType::Int4).ok_or_else(|| Error::internal("integers have no arrays"))?;
    let pids: Vec<Datum> = pids.into_iter().map(Datum::Int4).collect();
    Ok(Val::Own(Datum::Array(array::list(element, &pids)?)))
}

fn text_array(texts: Vec<String>) -> Result<Val<'static>> {
    let element =
        Element::of(SqlType::Text).ok_or_else(|| Error::internal("texts have no arrays"))?;
    let texts: Vec<Datum> = texts.into_iter().map(Datum::Text).collect();
    Ok(Val::Own(Datum::Array(array::list(element, &texts)?)))
}

/// What a function gives that gives nothing: it is not NULL.
pub fn void() -> Val<'static> {
    Val::text(String::new())
}

fn sequence_error(e: engine::Error, s: &Sequence) -> Error {
    match e {
        engine::Error::SequenceLimit {
            descending: false, ..
        } => Error::new(
            "2200H",
            format!(
                "nextval: reached maximum value of sequence \"{}\" ({})",
                s.name, s.max
            ),
        ),
        engine::Error::SequenceLimit { .. } => Error::new(
            "2200H",
            format!(
                "nextval: reached minimum value of sequence \"{}\" ({})",
                s.name, s.min
            ),
        ),
        other => other.into(),
    }
}
