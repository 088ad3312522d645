//! A pattern taken apart as PostgreSQL does it, whose rules say what each part prefers:
//! - What a quantifier repeats prefers the longest match, or with `?` the shortest. `{m}` prefers
//!   what it repeats does.
//! - A branch prefers what the first quantified part in it does that prefers anything; several
//!   branches, joined by `|`, prefer the longest.
//! - Parts without groups and references that prefer the same are one part.

use super::Flags;
use super::program::Program;
use super::syntax::{Ast, Prefers, Repeat};
use crate::error::Result;

/// What is known of a part: what it prefers, and what is in it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Marks {
    pub long: bool,
    pub short: bool,
    /// Parts of it prefer other matches than it does.
    mixed: bool,
    pub captures: bool,
    pub refers: bool,
}

impl Marks {
    fn of(prefers: Prefers) -> Marks {
        Marks {
            long: prefers == Prefers::Long,
            short: prefers == Prefers::Short,
            ..Marks::default()
        }
    }

    fn prefers(self) -> bool {
        self.long || self.short
    }

    /// Of either.
    fn or(self, other: Marks) -> Marks {
        Marks {
            long: self.long || other.long,
            short: self.short || other.short,
            mixed: self.mixed || other.mixed,
            captures: self.captures || other.captures,
            refers: self.refers || other.refers,
        }
    }

    /// What goes up to the part around.
    fn up(self) -> Marks {
        Marks {
            long: false,
            short: false,
            mixed: self.mixed || self.long && self.short,
            ..self
        }
    }

    /// Whether a part has to be taken apart.
    fn is_messy(self) -> bool {
        self.mixed || self.captures || self.refers
    }

    /// Of two parts, the first of which decides what both prefer, if it prefers anything.
    fn before(self, other: Marks) -> Marks {
        let decides = if self.prefers() { self } else { other };
        Marks {
            long: decides.long,
            short: decides.short,
            ..self.or(other).up()
        }
    }
}

/// A part of a pattern.
pub(super) struct Part {
    pub kind: Kind,
    pub marks: Marks,
    /// The group that it is; zero: none.
    pub group: usize,
    pub program: Program,
}

pub(super) enum Kind {
    /// Nothing in it is of interest.
    Plain,
    Pair(Box<Part>, Box<Part>),
    Branches(Vec<Part>),
    Repeat {
        of: Box<Part>,
        least: usize,
        most: Option<usize>,
    },
    Back {
        group: usize,
        least: usize,
        most: Option<usize>,
    },
    /// A group around a group.
    Around(Box<Part>),
}

pub(super) struct Builder {
    flags: Flags,
    /// The trees of the groups that are closed, by their numbers.
    groups: Vec<Option<Ast>>,
}

/// Takes a pattern apart.
pub(super) fn of(tree: &Ast, groups: usize, flags: Flags) -> Result<Part> {
    let mut builder = Builder {
        flags,
        groups: vec![None; groups + 1],
    };
    builder.tree(tree)
}

fn parts_of(tree: &Ast) -> &[Ast] {
    match tree {
        Ast::Cat(parts) => parts,
        other => std::slice::from_ref(other),
    }
}

impl Builder {
    fn part(&self, kind: Kind, marks: Marks, of: &Ast) -> Result<Part> {
        Ok(Part {
            kind,
            marks,
            group: 0,
            program: Program::new(of, &self.groups, self.flags)?,
        })
    }

    /// All branches.
    fn tree(&mut self, tree: &Ast) -> Result<Part> {
        let Ast::Alt(branches) = tree else {
            return self.branch(parts_of(tree));
        };
        let long = Marks::of(Prefers::Long);
        let mut marks = long;
        let mut parts = Vec::with_capacity(branches.len());
        for branch in branches {
            let part = self.branch(parts_of(branch))?;
            marks = marks.or(marks.or(part.marks).up());
            parts.push(part);
        }
        let kind = match marks.is_messy() {
            true => Kind::Branches(parts),
            false => Kind::Plain,
        };
        self.part(kind, marks, tree)
    }

    fn branch(&mut self, parts: &[Ast]) -> Result<Part> {
        let mut marks = Marks::default();
        for (at, part) in parts.iter().enumerate() {
            let (of, least, most, prefers) = match part {
                Ast::Repeat(repeat) => {
                    let Repeat {
                        of,
                        least,
                        most,
                        prefers,
                    } = &**repeat;
                    (of, *least, *most, *prefers)
                }
                other => (other, 1, Some(1), Prefers::Nothing),
            };
            if matches!(of, Ast::Assert(_) | Ast::Look(_)) || most == Some(0) {
                continue;
            }
            let atom = self.atom(of)?;
            let wanted = Marks::of(prefers);
            let all = marks.or(wanted).or(atom.marks);
            let stands_alone = matches!(of, Ast::Group(1.., _) | Ast::Back(_));
            if !stands_alone && !all.up().is_messy() {
                marks = all;
                continue;
            }
            let atom = self.repeated(atom, of, (least, most), wanted)?;
            let rest = &parts[at + 1..];
            let tail = match rest.is_empty() {
                true => atom,
                false => {
                    let rest = self.branch(rest)?;
                    let both = atom.marks.before(rest.marks);
                    let is_plain = |part: &Part| matches!(part.kind, Kind::Plain);
                    let merges = at > 0 && is_plain(&atom) && is_plain(&rest);
                    let kind = match merges && !atom.marks.or(rest.marks).up().is_messy() {
                        true => Kind::Plain,
                        false => Kind::Pair(Box::new(atom), Box::new(rest)),
                    };
                    self.part(kind, both, &Ast::Cat(parts[at..].to_vec()))?
                }
            };
            if at == 0 {
                return Ok(tail);
            }
            let before = self.part(Kind::Plain, marks, &Ast::Cat(parts[..at].to_vec()))?;
            let both = marks.or(marks.before(tail.marks));
            let kind = Kind::Pair(Box::new(before), Box::new(tail));
            return self.part(kind, both, &Ast::Cat(parts.to_vec()));
        }
        self.part(Kind::Plain, marks, &Ast::Cat(parts.to_vec()))
    }

    fn atom(&mut self, of: &Ast) -> Result<Part> {
        match of {
            Ast::Group(0, of) => self.tree(of),
            Ast::Group(number, inner) => {
                let mut part = self.tree(inner)?;
                if part.group != 0 {
                    let marks = part.marks;
                    part = self.part(Kind::Around(Box::new(part)), marks, of)?;
                }
                part.marks.captures = true;
                part.group = *number;
                self.groups[*number] = Some((**inner).clone());
                Ok(part)
            }
            Ast::Back(group) => {
                let kind = Kind::Back {
                    group: *group,
                    least: 1,
                    most: Some(1),
                };
                let marks = Marks {
                    refers: true,
                    ..Marks::default()
                };
                self.part(kind, marks, of)
            }
            other => self.part(Kind::Plain, Marks::default(), other),
        }
    }

    /// A part that is taken apart, so many times.
    fn repeated(
        &self,
        atom: Part,
        of: &Ast,
        (least, most): (u32, Option<u32>),
        wanted: Marks,
    ) -> Result<Part> {
        let times = |of: &Ast, least: u32, most: Option<u32>| {
            Ast::Repeat(Box::new(Repeat {
                of: of.clone(),
                least,
                most,
                prefers: Prefers::Nothing,
            }))
        };
        let marks = wanted.before(atom.marks);
        let whole = times(of, least, most);
        if let Kind::Back { group, .. } = atom.kind {
            let kind = Kind::Back {
                group,
                least: least as usize,
                most: most.map(|most| most as usize),
            };
            return self.part(kind, marks, &whole);
        }
        let agrees = !wanted.prefers()
            || !(atom.marks.prefers() || atom.marks.mixed)
            || (wanted.long, wanted.short, false)
                == (atom.marks.long, atom.marks.short, atom.marks.mixed);
        if (least, most) == (1, Some(1)) && agrees {
            return Ok(atom);
        }
        if !atom.marks.captures && !atom.marks.refers {
            return self.part(Kind::Plain, marks, &whole);
        }
        if least > 0 && !atom.marks.refers {
            // Only the last one is of interest.
            let prefix = times(of, least - 1, most.map(|most| most - 1));
            let alone = Marks {
                long: marks.long,
                short: marks.short,
                ..Marks::default()
            };
            let prefix = self.part(Kind::Plain, alone, &prefix)?;
            let kind = Kind::Pair(Box::new(prefix), Box::new(atom));
            return self.part(kind, marks, &whole);
        }
        let kind = Kind::Repeat {
            of: Box::new(atom),
            least: least as usize,
            most: most.map(|most| most as usize),
        };
        self.part(kind, marks, &whole)
    }
}
