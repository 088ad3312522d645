//! EXPLAIN: the steps of a plan, and what they took if the statement is run, as text or for
//! programs.
//!
//! [`outline`] lists the steps, with all that is known of each. [`text`] prints the list;
//! [`document`] makes it a tree, which [`formats`] prints.

mod document;
mod expression;
mod formats;
mod options;
mod outline;
mod step;
mod subject;
mod text;
mod traced;
mod tree;

use block::value::{Datum, DatumRef};
use wait::Stat;

use crate::api::{Completion, RowSink, Tag};
use crate::error::{Error, Result};
use crate::exec::profile::{Mark, Profile, Took};
use crate::parse::explain::ExplainOption;
use crate::session::{Core, Kind, Portal, SqlSession};

use options::{Format, Options};
use outline::Outline;
use step::{Actual, Entry, Group, Value};
use subject::Subject;

pub(crate) use options::column_type;
pub(crate) use traced::{Outlined, PlanStep, TracedStep, outlined, steps};

/// The answer's rows, of one column: one for each line of the text, one of other formats.
/// `whole` is the text of the EXPLAIN statement, `text` that of the statement within it, which
/// takes the values of parameters of these types.
pub fn run(
    session: &mut SqlSession,
    whole: &str,
    (written, text): (&[ExplainOption], &str),
    (param_types, values): (&[u32], &[Datum]),
) -> Result<Vec<Vec<Datum>>> {
    let before = whole.rfind(text).unwrap_or_default();
    let before = whole[..before].chars().count() as u32;
    let within = |e: Error| e.moved(before);
    let mark = Mark::now();
    let statement = session.parse(text, param_types).map_err(within)?;
    let statement = session.with_arrays(&statement, values).map_err(within)?;
    let options = Options::of(written)?;
    let subject = Subject::of(session, (statement, values), options.analyze).map_err(within)?;
    if let Subject::Bare(bare) = &subject {
        let texts = match options.format {
            Format::Text => bare.line.map(str::to_string).into_iter().collect(),
            format => vec![formats::bare(format, bare.name)],
        };
        return Ok(rows(texts));
    }
    let planning = mark.took();
    let (subject, measured) = match options.analyze {
        true => measure(session, subject, &options).map_err(within)?,
        false => {
            session.ensure_transaction()?;
            if let Subject::Planned(statement, _) = &subject {
                session.check_permitted(statement).map_err(within)?;
            }
            (subject, None)
        }
    };
    let core = &mut session.core;
    let mut outline = Outline::new(&options, measured.as_ref(), core);
    match &subject {
        Subject::Planned(statement, _) => outline.kind(&statement.kind, core),
        Subject::Filling(_, query) => outline.filling(query, core),
        Subject::Bare(_) => Ok(()),
    }
    .map_err(within)?;
    let answer = Answer {
        entries: outline.entries,
        settings: match options.settings {
            true => settings(core),
            false => Vec::new(),
        },
        planning,
        measured,
    };
    let texts = match options.format {
        Format::Text => answer.lines(&options),
        Format::Json => vec![formats::json(&answer.document(&options))],
        Format::Yaml => vec![formats::yaml(&answer.document(&options))],
        Format::Xml => vec![formats::xml(&answer.document(&options))],
    };
    Ok(rows(texts))
}

fn rows(texts: Vec<String>) -> Vec<Vec<Datum>> {
    texts.into_iter().map(|t| vec![Datum::Text(t)]).collect()
}

/// Parameters that plans and how they run depend on.
const PLANNING: [&str; 5] = [
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "search_path",
    "vectorized",
    "work_mem",
];

/// Those of [`PLANNING`] that are not what they are without anybody's setting, as SHOW gives them.
fn settings(core: &Core) -> Vec<(&'static str, String)> {
    let changed = |name: &&'static str| {
        let param = crate::params::find(name)?;
        let value = core.settings.value(param);
        (value != param.default).then(|| (param.name, param.show(&value)))
    };
    PLANNING.iter().filter_map(changed).collect()
}

/// What EXPLAIN says, in whatever format.
struct Answer {
    entries: Vec<Entry>,
    settings: Vec<(&'static str, String)>,
    planning: Took,
    measured: Option<Measured>,
}

impl Answer {
    fn lines(&self, options: &Options) -> Vec<String> {
        let mut lines: Vec<String> = text::lines(&self.entries, options).collect();
        if !self.settings.is_empty() {
            let settings = self.settings.iter();
            let shown: Vec<String> = settings.map(|(n, v)| format!("{n} = '{v}'")).collect();
            lines.push(format!("Settings: {}", shown.join(", ")));
        }
        let gets = |took: Took| format!("Buffers: gets={} reads={}", took.gets, took.reads);
        match &self.measured {
            Some(m) if options.buffers => lines.push(gets(m.in_all())),
            None if options.buffers && self.planning.gets > 0 => {
                lines.extend([
                    "Planning:".to_string(),
                    format!("  {}", gets(self.planning)),
                ]);
            }
            _ => {}
        }
        if let Some(m) = &self.measured
            && options.wal
            && m.redo.records > 0
        {
            let Redo { records, bytes } = m.redo;
            lines.push(format!("WAL: records={records} bytes={bytes}"));
        }
        if options.summary {
            let planning = text::milliseconds(self.planning.time);
            lines.push(format!("Planning Time: {planning}"));
            if let Some(m) = &self.measured {
                let execution = text::milliseconds(m.total.time);
                lines.push(format!("Execution Time: {execution}"));
            }
        }
        lines
    }

    fn document(mut self, options: &Options) -> Group {
        if let Some(m) = &self.measured {
            m.complete(&mut self.entries);
        }
        let mut plan = document::plan(&self.entries, options);
        if let Some(m) = &self.measured
            && options.wal
        {
            // What is below the topmost step stays the last.
            let below = plan.iter().position(|(key, _)| *key == "Plans");
            let redo = [
                ("WAL Records", m.redo.records.into()),
                ("WAL Bytes", m.redo.bytes.into()),
            ];
            let at = below.unwrap_or(plan.len());
            plan.splice(at..at, redo);
        }
        let mut query: Group = vec![("Plan", Value::Group(plan))];
        if !self.settings.is_empty() {
            let settings = self.settings.into_iter().map(|(n, v)| (n, v.into()));
            query.push(("Settings", Value::Group(settings.collect())));
        }
        if options.buffers {
            let mut planning = Group::new();
            document::buffers(&mut planning, self.planning);
            query.push(("Planning", Value::Group(planning)));
        }
        if options.summary {
            let time = |took: Took| Value::Number(format!("{:.3}", took.time.as_secs_f64() * 1e3));
            query.push(("Planning Time", time(self.planning)));
            if let Some(m) = &self.measured {
                query.push(("Execution Time", time(m.total)));
            }
        }
        query
    }
}

/// A statement that was run.
struct Measured {
    profile: Box<Profile>,
    total: Took,
    /// Rows sent or changed.
    rows: u64,
    redo: Redo,
}

/// Redo that the session's thread has written.
#[derive(Clone, Copy, Default)]
struct Redo {
    records: u64,
    bytes: u64,
}

impl Redo {
    fn now() -> Redo {
        let counted = |session: &wait::session::Session| Redo {
            records: session.counters.stat(Stat::RedoEntries),
            bytes: session.counters.stat(Stat::RedoSize),
        };
        wait::session::with(counted).unwrap_or_default()
    }

    fn since(self, earlier: Redo) -> Redo {
        Redo {
            records: self.records - earlier.records,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Measured {
    /// With what threads beside the session's own took.
    fn in_all(&self) -> Took {
        let workers = self.profile.of_workers;
        Took {
            time: self.total.time,
            gets: self.total.gets + workers.gets,
            reads: self.total.reads + workers.reads,
        }
    }

    /// What the whole statement took is what its topmost step took, if that was not measured.
    fn complete(&self, entries: &mut [Entry]) {
        if let Some(Entry::Step(top)) = entries.first_mut() {
            top.actual.get_or_insert(Actual {
                rows: self.rows,
                loops: 1,
                took: self.total,
            });
        }
    }
}

/// Runs what is explained. Returns what was run: its tables may have changed.
fn measure(
    session: &mut SqlSession,
    subject: Subject,
    options: &Options,
) -> Result<(Subject, Option<Measured>)> {
    let (statement, values) = match &subject {
        Subject::Planned(statement, values) => (statement, values.clone()),
        Subject::Filling(statement, _) => (statement, Vec::new()),
        Subject::Bare(_) => return Ok((subject, None)),
    };
    let mut count = Count(0);
    let mut portal = Portal::new(statement, values);
    session.core.profile = Some(Box::new(match options.timing {
        true => Profile::default(),
        false => Profile::untimed(),
    }));
    let (mark, redo) = (Mark::now(), Redo::now());
    let done = session.execute(&mut portal, 0, &mut count);
    let (total, redo) = (mark.took(), Redo::now().since(redo));
    let mut profile = session.core.profile.take().unwrap_or_default();
    let rows = match done? {
        Completion::Complete(Tag::Rows(_, n) | Tag::Insert(n)) => n,
        _ => count.0,
    };
    let ran = match (subject, profile.filling.take()) {
        (Subject::Filling(statement, _), Some(plan)) => Subject::Filling(statement, plan),
        (Subject::Filling(statement, plan), None) => Subject::Filling(statement, plan),
        (_, _) => Subject::Planned(portal.statement().clone(), Vec::new()),
    };
    let measured = Measured {
        profile,
        total,
        rows,
        redo,
    };
    Ok((ran, Some(measured)))
}

/// Whether a statement has a plan, so that running it runs nothing else.
pub(crate) fn can_run(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Empty | Kind::Utility(_) | Kind::Ddl(_) | Kind::Call(_)
    )
}

fn no_plan() -> Error {
    let message = "EXPLAIN is for SELECT, VALUES, INSERT, UPDATE and DELETE";
    Error::new("42601", message)
}

struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &[DatumRef<'_>]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
}
