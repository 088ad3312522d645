//! The SQL trace of statements within functions: cursors of their own, one deeper than the call
//! that they are a part of.
//!
//! **Invariant.** A call within another one is written before that one is, and its figures are a
//! part of that one's.

use sqlparser::ast;
use sqltrace::CallKind;

use super::Core;
use super::nested::Nested;
use super::traced::{Counting, EndedCall, TracedCall, TracedRun};
use crate::api::RowSink;
use crate::bind::ParamTypes;
use crate::dict::Dict;
use crate::error::Result;
use crate::exec::profile::Mark;
use crate::trace::{CallMark, Ended, Traced};
use crate::types::SqlType;

/// A trace that writes statements within others: what it was before.
struct Followed {
    level: u8,
    /// The call around the statement is not traced, and so has not been counted.
    is_alone: bool,
}

/// How a call of a statement within another one is traced.
pub(super) struct Way<'w, T> {
    /// It begins the execution; otherwise it goes on with it.
    pub is_first: bool,
    /// What the steps of the plan have taken so far.
    pub kept: &'w mut Option<Box<TracedRun>>,
    /// Rows that it has changed; `None`: those that it gave count.
    pub written: &'w dyn Fn(&T) -> Option<u64>,
    /// Whether the statement is over with it.
    pub is_over: &'w dyn Fn(&T) -> bool,
}

impl Core {
    /// Goes over to the level at which a statement within another one is traced; `None`: it is not.
    fn follow_within(&mut self, text: &str) -> Option<Followed> {
        let of_statement = self.trace.statements.level_of_text(text);
        let mut level = self.trace.tracer.as_ref().map(|t| t.level());
        if level.is_none() && of_statement != 0 && !self.trace.is_refused {
            self.begin_trace(of_statement);
            level = Some(0);
        }
        let (level, tracer) = (level?, self.trace.tracer.as_mut()?);
        if level | of_statement == 0 {
            return None;
        }
        if tracer.level() != level | of_statement {
            tracer.set_level(level | of_statement);
        }
        let is_alone = tracer.depth() == 0;
        if is_alone {
            tracer.deeper();
        }
        Some(Followed { level, is_alone })
    }

    fn follow_no_more(&mut self, followed: &Followed) {
        if let Some(tracer) = &mut self.trace.tracer {
            if followed.is_alone {
                tracer.less_deep();
                tracer.flush();
            }
            if tracer.level() != followed.level {
                tracer.set_level(followed.level);
            }
        }
    }

    /// Makes a call of a nested statement in a session that may be traced.
    #[cold]
    pub(super) fn traced_within<T>(
        &mut self,
        nested: &Nested,
        way: Way<'_, T>,
        sink: &mut dyn RowSink,
        work: impl FnOnce(&mut Core, &mut dyn RowSink) -> Result<T>,
    ) -> Result<T> {
        let Some(followed) = self.follow_within(&nested.text) else {
            return work(self, sink);
        };
        let outer = self.trace.put_away();
        let traced = Traced::within(nested);
        let is_whole = way.is_first || way.kept.is_some();
        let wants_plan = self.begin_call(&traced, &nested.kind, is_whole);
        self.measure_plan(wants_plan, way.kept);
        let from = CallMark::now();
        self.trace.executing = way.is_first.then(|| (traced.clone(), from));
        let mark = wants_plan.then(Mark::now);
        let mut counting = Counting { sink, rows: 0 };
        let done = work(self, &mut counting);
        let call = TracedCall {
            traced,
            from,
            executed: self.trace.executed.take(),
            to: CallMark::now(),
            rows: counting.rows,
            is_first: way.is_first,
        };
        let written = done.as_ref().ok().and_then(way.written);
        if let Some(mark) = mark {
            self.keep_traced(way.kept, mark.took(), written.unwrap_or(call.rows));
        }
        let plan = match done.as_ref().map(way.is_over) {
            Ok(false) => None,
            Ok(true) | Err(_) => way.kept.take(),
        };
        let ended = EndedCall {
            call: &call,
            written,
            error: done.as_ref().err(),
        };
        self.end_traced(&ended, &nested.kind, plan);
        self.trace.put_back(outer);
        self.follow_no_more(&followed);
        done
    }

    /// Plans a nested statement in a session that may be traced.
    #[cold]
    pub(super) fn analyse_traced(
        &mut self,
        text: &str,
        statement: &ast::Statement,
        params: &dyn Fn(&Dict) -> ParamTypes,
        is_wanted: impl FnOnce(&Nested) -> bool,
    ) -> Result<(Nested, Vec<SqlType>)> {
        let Some(followed) = self.follow_within(text) else {
            return self.analyse_plain(text, statement, params);
        };
        let outer = self.trace.put_away();
        self.with_tracer(|t, _| {
            t.begin(None);
            t.deeper();
        });
        let from = CallMark::now();
        let planned = self.analyse_plain(text, statement, params);
        let to = CallMark::now();
        self.with_tracer(|t, core| {
            t.less_deep();
            match &planned {
                Ok((nested, _)) if is_wanted(nested) => {
                    let traced = Traced::within(nested);
                    core.open_cursor(t, &traced, &nested.kind, &from);
                    t.call(&Ended {
                        kind: CallKind::Parse,
                        statement: &traced,
                        from,
                        to,
                        rows: 0,
                    });
                }
                Ok(_) => {}
                Err(e) => t.error(None, text, core.roles.current, e),
            }
        });
        self.trace.put_back(outer);
        self.follow_no_more(&followed);
        planned
    }
}
