//! A part of a pattern as a program that finds the ends of its matches: a nondeterministic
//! automaton over characters, which knows assertions and looks around. Of what refers back it takes
//! whatever the group could match; [`super::dissect`] is exact.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::syntax::{Assert, Ast, Look, Repeat, Set};
use super::{Flags, invalid};
use crate::error::Result;

/// Instructions of a program. A pattern of more is refused, as PostgreSQL refuses what is too
/// complex.
const MAX_SIZE: usize = 200_000;
/// Steps between two looks at whether the statement is cancelled.
const STEPS: u32 = 1 << 16;

/// A text that is searched.
pub(super) struct Text {
    pub chars: Vec<char>,
    /// Whether letters are the same without their case.
    pub folds: bool,
    steps: Cell<u32>,
}

impl Text {
    pub fn new(text: &str, folds: bool) -> Text {
        Text {
            chars: text.chars().collect(),
            folds,
            steps: Cell::new(0),
        }
    }

    pub fn len(&self) -> usize {
        self.chars.len()
    }

    fn is_word(&self, at: usize) -> bool {
        let c = self.chars.get(at);
        c.is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_')
    }

    /// Ends the statement if that is wanted.
    pub fn step(&self, steps: u32) -> Result<()> {
        self.steps.set(self.steps.get().saturating_add(steps));
        if self.steps.get() >= STEPS {
            self.steps.set(0);
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
        Ok(())
    }
}

#[derive(Debug)]
enum Inst {
    Set(Rc<Set>, usize),
    Split(usize, usize),
    Jump(usize),
    Assert(Assert, usize),
    Look(Rc<Looking>, usize),
    Match,
}

#[derive(Debug)]
struct Looking {
    ahead: bool,
    negated: bool,
    program: Program,
}

#[derive(Debug)]
pub(super) struct Program {
    code: Vec<Inst>,
    folds: bool,
    by_line: bool,
    /// The places that are entered, for the next search.
    memory: RefCell<[Places; 2]>,
}

/// Which instructions are live, each once.
#[derive(Default, Debug)]
struct Places {
    live: Vec<usize>,
    seen: Vec<u32>,
    round: u32,
}

impl Places {
    fn clear(&mut self, size: usize) {
        self.live.clear();
        self.seen.resize(size, 0);
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.seen.fill(0);
            self.round = 1;
        }
    }

    fn enter(&mut self, place: usize) -> bool {
        let new = self.seen[place] != self.round;
        self.seen[place] = self.round;
        new
    }
}

impl Program {
    /// `groups` are what references back refer to, by their numbers.
    pub fn new(of: &Ast, groups: &[Option<Ast>], flags: Flags) -> Result<Program> {
        let mut program = Program {
            code: Vec::new(),
            folds: flags.fold_case,
            by_line: flags.anchors_at_newline,
            memory: RefCell::default(),
        };
        program.add(of, groups, flags, false)?;
        program.push(Inst::Match)?;
        Ok(program)
    }

    fn push(&mut self, inst: Inst) -> Result<usize> {
        if self.code.len() == MAX_SIZE {
            return Err(invalid("regular expression is too complex"));
        }
        self.code.push(inst);
        Ok(self.code.len() - 1)
    }

    /// Adds a part; control goes on behind it. `free`: what only constrains is left out.
    fn add(&mut self, of: &Ast, groups: &[Option<Ast>], flags: Flags, free: bool) -> Result<()> {
        match of {
            Ast::Empty => {}
            Ast::Set(set) => {
                let next = self.code.len() + 1;
                self.push(Inst::Set(set.clone(), next))?;
            }
            Ast::Assert(_) | Ast::Look(_) if free => {}
            Ast::Assert(assert) => {
                let next = self.code.len() + 1;
                self.push(Inst::Assert(*assert, next))?;
            }
            Ast::Look(look) => {
                let Look { ahead, negated, of } = &**look;
                let program = Program::new(of, groups, flags)?;
                let looking = Looking {
                    ahead: *ahead,
                    negated: *negated,
                    program,
                };
                let next = self.code.len() + 1;
                self.push(Inst::Look(Rc::new(looking), next))?;
            }
            Ast::Cat(parts) => {
                for part in parts {
                    self.add(part, groups, flags, free)?;
                }
            }
            Ast::Alt(branches) => self.alternatives(branches, groups, flags, free)?,
            Ast::Group(_, of) => self.add(of, groups, flags, free)?,
            Ast::Back(number) => {
                if let Some(Some(group)) = groups.get(*number) {
                    self.add(group, groups, flags, true)?;
                }
            }
            Ast::Repeat(repeat) => {
                let Repeat {
                    of, least, most, ..
                } = &**repeat;
                self.repeat(of, (*least, *most), &|program, of| {
                    program.add(of, groups, flags, free)
                })?;
            }
        }
        Ok(())
    }

    fn alternatives(
        &mut self,
        branches: &[Ast],
        groups: &[Option<Ast>],
        flags: Flags,
        free: bool,
    ) -> Result<()> {
        let mut ends = Vec::new();
        for (at, branch) in branches.iter().enumerate() {
            let split = match at + 1 < branches.len() {
                true => Some(self.push(Inst::Split(0, 0))?),
                false => None,
            };
            self.add(branch, groups, flags, free)?;
            if let Some(split) = split {
                ends.push(self.push(Inst::Jump(0))?);
                self.code[split] = Inst::Split(split + 1, self.code.len());
            }
        }
        let end = self.code.len();
        for jump in ends {
            self.code[jump] = Inst::Jump(end);
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        of: &Ast,
        (least, most): (u32, Option<u32>),
        add: &dyn Fn(&mut Program, &Ast) -> Result<()>,
    ) -> Result<()> {
        for _ in 0..least {
            add(self, of)?;
        }
        match most {
            None => {
                let split = self.push(Inst::Split(0, 0))?;
                add(self, of)?;
                self.push(Inst::Jump(split))?;
                self.code[split] = Inst::Split(split + 1, self.code.len());
            }
            Some(most) => {
                let mut splits = Vec::new();
                for _ in least..most {
                    splits.push(self.push(Inst::Split(0, 0))?);
                    add(self, of)?;
                }
                let end = self.code.len();
                for split in splits {
                    self.code[split] = Inst::Split(split + 1, end);
                }
            }
        }
        Ok(())
    }

    /// All ends of matches that begin at a place and end by `limit`, ascending.
    pub fn ends(&self, text: &Text, begin: usize, limit: usize) -> Result<Vec<usize>> {
        let mut ends = Vec::new();
        self.run(text, begin, limit, false, &mut |end| {
            ends.push(end);
            true
        })?;
        Ok(ends)
    }

    /// The first end of matches that begin at a place that is not before another one.
    pub fn shortest(&self, text: &Text, begin: usize, least: usize) -> Result<Option<usize>> {
        let mut first = None;
        self.run(text, begin, text.len(), false, &mut |end| {
            first = Some(end).filter(|end| *end >= least);
            first.is_none()
        })?;
        Ok(first)
    }

    /// Whether it matches just what is between two places.
    pub fn is_exact(&self, text: &Text, begin: usize, end: usize) -> Result<bool> {
        let mut last = None;
        self.run(text, begin, end, false, &mut |found| {
            last = Some(found);
            true
        })?;
        Ok(last == Some(end))
    }

    /// The first end of a match that begins there or later.
    pub fn first_end(&self, text: &Text, from: usize) -> Result<Option<usize>> {
        let mut first = None;
        self.run(text, from, text.len(), true, &mut |end| {
            first = Some(end);
            false
        })?;
        Ok(first)
    }

    /// Gives each end of a match to `found`, until that has enough. `anywhere`: matches may begin
    /// at every later place, too.
    fn run(
        &self,
        text: &Text,
        begin: usize,
        limit: usize,
        anywhere: bool,
        found: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        // A look around may come back to the program that asks.
        let [mut here, mut next] = self.memory.take();
        here.clear(self.code.len());
        let mut at = begin;
        let mut open = Vec::new();
        self.enter(0, text, at, &mut here, &mut open)?;
        loop {
            text.step(here.live.len() as u32 + 1)?;
            let is_end = here
                .live
                .iter()
                .any(|place| matches!(self.code[*place], Inst::Match));
            if is_end && !found(at) || at >= limit || !anywhere && here.live.is_empty() {
                break;
            }
            let c = text.chars[at];
            next.clear(self.code.len());
            for place in &here.live {
                if let Inst::Set(set, to) = &self.code[*place]
                    && self.has(set, c)
                {
                    self.enter(*to, text, at + 1, &mut next, &mut open)?;
                }
            }
            at += 1;
            std::mem::swap(&mut here, &mut next);
            if anywhere {
                self.enter(0, text, at, &mut here, &mut open)?;
            }
        }
        self.memory.replace([here, next]);
        Ok(())
    }

    /// Makes an instruction live, or those that it leads to without a character.
    fn enter(
        &self,
        place: usize,
        text: &Text,
        at: usize,
        places: &mut Places,
        open: &mut Vec<usize>,
    ) -> Result<()> {
        open.push(place);
        while let Some(place) = open.pop() {
            if !places.enter(place) {
                continue;
            }
            match &self.code[place] {
                Inst::Set(..) | Inst::Match => places.live.push(place),
                Inst::Split(one, other) => open.extend([*other, *one]),
                Inst::Jump(to) => open.push(*to),
                Inst::Assert(assert, to) => {
                    if self.holds(*assert, text, at) {
                        open.push(*to);
                    }
                }
                Inst::Look(look, to) => {
                    if look.holds(text, at)? {
                        open.push(*to);
                    }
                }
            }
        }
        Ok(())
    }

    fn holds(&self, assert: Assert, text: &Text, at: usize) -> bool {
        let before = at.checked_sub(1);
        let is_newline = |at: usize| text.chars.get(at) == Some(&'\n');
        let word_before = before.is_some_and(|before| text.is_word(before));
        let word_behind = text.is_word(at);
        match assert {
            Assert::Begin => at == 0,
            Assert::End => at == text.len(),
            Assert::LineBegin => at == 0 || self.by_line && before.is_some_and(is_newline),
            Assert::LineEnd => at == text.len() || self.by_line && is_newline(at),
            Assert::WordBegin => !word_before && word_behind,
            Assert::WordEnd => word_before && !word_behind,
            Assert::WordBoundary => word_before != word_behind,
            Assert::NoWordBoundary => word_before == word_behind,
        }
    }

    fn has(&self, set: &Set, c: char) -> bool {
        let within = |c: char| {
            set.ranges
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&c))
        };
        let found = within(c)
            || self.folds && {
                let lower = c.to_lowercase().next();
                let upper = c.to_uppercase().next();
                lower.is_some_and(within) || upper.is_some_and(within)
            };
        found != set.negated
    }
}

impl Looking {
    fn holds(&self, text: &Text, at: usize) -> Result<bool> {
        let found = match self.ahead {
            true => self.program.shortest(text, at, at)?.is_some(),
            false => {
                let mut found = false;
                self.program.run(text, 0, at, true, &mut |end| {
                    found = end == at;
                    true
                })?;
                found
            }
        };
        Ok(found != self.negated)
    }
}
