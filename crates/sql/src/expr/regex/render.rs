//! A pattern's tree as a pattern of the automata's language.

use super::syntax::{Assert, Ast, Prefers, Repeat, Set};

/// The pattern; what it prefers short is written so, though automata do not heed it.
pub(super) fn pattern(tree: &Ast) -> String {
    let mut out = String::new();
    write(tree, &mut out);
    out
}

fn write(tree: &Ast, out: &mut String) {
    match tree {
        // Patterns that look around or refer back are for no automaton.
        Ast::Empty | Ast::Look(_) | Ast::Back(_) => {}
        Ast::Set(set) => write_set(set, out),
        Ast::Assert(assert) => out.push_str(match assert {
            Assert::Begin => "\\A",
            Assert::End => "\\z",
            Assert::LineBegin => "^",
            Assert::LineEnd => "$",
            Assert::WordBegin => "(?-u:\\b{start})",
            Assert::WordEnd => "(?-u:\\b{end})",
            Assert::WordBoundary => "(?-u:\\b)",
            Assert::NoWordBoundary => "(?-u:\\B)",
        }),
        Ast::Cat(parts) => parts.iter().for_each(|part| write(part, out)),
        Ast::Alt(branches) => {
            out.push_str("(?:");
            for (at, branch) in branches.iter().enumerate() {
                if at > 0 {
                    out.push('|');
                }
                write(branch, out);
            }
            out.push(')');
        }
        Ast::Group(_, of) => {
            out.push_str("(?:");
            write(of, out);
            out.push(')');
        }
        Ast::Repeat(repeat) => write_repeat(repeat, out),
    }
}

fn write_repeat(repeat: &Repeat, out: &mut String) {
    out.push_str("(?:");
    write(&repeat.of, out);
    out.push(')');
    let least = repeat.least;
    *out += &match repeat.most {
        Some(most) => format!("{{{least},{most}}}"),
        None => format!("{{{least},}}"),
    };
    if repeat.prefers == Prefers::Short {
        out.push('?');
    }
}

fn write_set(set: &Set, out: &mut String) {
    if let ([(low, high)], false) = (set.ranges.as_slice(), set.negated)
        && low == high
    {
        return write_char(*low, out);
    }
    if set.ranges.is_empty() {
        out.push_str(if set.negated { "(?s:.)" } else { "[a&&b]" });
        return;
    }
    out.push_str(if set.negated { "[^" } else { "[" });
    for (low, high) in &set.ranges {
        write_char(*low, out);
        out.push('-');
        write_char(*high, out);
    }
    out.push(']');
}

fn write_char(c: char, out: &mut String) {
    match c.is_ascii_alphanumeric() || c as u32 > 127 {
        true => out.push(c),
        false => *out += &format!("\\x{{{:x}}}", c as u32),
    }
}
