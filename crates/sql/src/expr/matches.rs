//! What regular expressions find: `regexp_match` and its kin, and `substring .. from pattern`.
//! Positions count characters, from 1. None is called with NULL.

use block::value::{Datum, DatumRef};

use super::eval::strict;
use super::func::{Calls, Func, PureFunc, Signature};
use super::regex::{self, Flags, Found};
use super::{Env, Expr, Val, similar};
use crate::error::{Error, Result};
use crate::pgtype::array;
use crate::types::{Element, SqlType};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchFunc {
    /// The groups of the first match, or all of it.
    Match,
    /// Those of all matches: an array for each.
    Matches,
    Split,
    Count,
    Position,
    Substring,
    Like,
    /// From a position on, the first, the n-th or all matches replaced.
    ReplaceFrom,
    /// The part that the first group matches, or all of the match.
    Part,
    /// The part that a pattern of SIMILAR TO names, with its escape character.
    SimilarPart,
}

/// The overloads of the function of that name.
pub fn overloads(name: &str) -> Vec<Signature> {
    use MatchFunc::*;
    use SqlType::{Bool, Int4, Text};
    const COUNT: &[SqlType] = &[Text, Text, Int4, Text];
    const INSTR: &[SqlType] = &[Text, Text, Int4, Int4, Int4, Text, Int4];
    const SUBSTR: &[SqlType] = &[Text, Text, Int4, Int4, Text, Int4];
    const FLAGS: &[SqlType] = &[Text, Text, Text];
    const REPLACE: &[SqlType] = &[Text, Text, Text, Int4, Int4, Text];
    let (func, args, fewest, result) = match name {
        "regexp_match" => (Match, FLAGS, 2, SqlType::TEXTS),
        "regexp_split_to_array" => (Split, FLAGS, 2, SqlType::TEXTS),
        "regexp_count" => (Count, COUNT, 2, Int4),
        "regexp_instr" => (Position, INSTR, 2, Int4),
        "regexp_substr" => (Substring, SUBSTR, 2, Text),
        "regexp_like" => (Like, FLAGS, 2, Bool),
        "regexp_replace" => (ReplaceFrom, REPLACE, 4, Text),
        _ => return Vec::new(),
    };
    signatures(func, args, fewest, result)
}

/// What `regexp_matches` gives rows of: an array of two dimensions, of which each is one.
pub fn all_at_once() -> Vec<Signature> {
    use SqlType::Text;
    signatures(MatchFunc::Matches, &[Text, Text, Text], 2, SqlType::TEXTS)
}

fn signatures(
    func: MatchFunc,
    args: &'static [SqlType],
    fewest: usize,
    result: SqlType,
) -> Vec<Signature> {
    let of = |length: usize| Signature {
        func: Func::Pure(PureFunc::Match(func)),
        args: &args[..length],
        result,
    };
    (fewest..=args.len()).map(of).collect()
}

pub fn call<'a>(
    func: MatchFunc,
    args: &'a [Expr],
    env: &Env<'a>,
    calls: &mut dyn Calls,
) -> Result<Val<'a>> {
    let Some(values) = strict(args, env, calls)? else {
        return Ok(Val::NULL);
    };
    let (text, pattern) = (string(&values, 0)?, string(&values, 1)?);
    match func {
        MatchFunc::Match => first_match(text, pattern, &values),
        MatchFunc::Matches => all_matches(text, pattern, &values),
        MatchFunc::Split => split(text, pattern, &values),
        MatchFunc::Count => {
            let flags = flags(&values, 3, "regexp_count()", None)?;
            let start = start(text, &values, 2)?;
            let found = match start {
                Some(at) => regex::all(text, pattern, flags, at, usize::MAX)?.len(),
                None => 0,
            };
            Ok(Val::int4(i32::try_from(found).unwrap_or(i32::MAX)))
        }
        MatchFunc::Position => position(text, pattern, &values),
        MatchFunc::Substring => {
            let flags = flags(&values, 4, "regexp_substr()", None)?;
            let found = nth_match(text, pattern, flags, &values, 5)?;
            Ok(found.map_or(Val::NULL, |(from, to)| {
                Val::text(text[from..to].to_string())
            }))
        }
        MatchFunc::Like => {
            let flags = flags(&values, 2, "regexp_like()", None)?;
            Ok(Val::bool(
                !regex::all(text, pattern, flags, 0, 1)?.is_empty(),
            ))
        }
        MatchFunc::ReplaceFrom => replace_from(text, pattern, &values),
        MatchFunc::Part | MatchFunc::SimilarPart => {
            let similar = match func {
                MatchFunc::Part => None,
                _ => {
                    let escape = similar::escape_of(string(&values, 2)?)?;
                    Some(similar::to_regex(pattern, escape)?)
                }
            };
            let pattern = similar.as_deref().unwrap_or(pattern);
            let found = regex::all(text, pattern, Flags::default(), 0, 1)?;
            let part = found.first().and_then(|f| match f.groups.first() {
                Some(group) => *group,
                None => Some((f.start, f.end)),
            });
            Ok(part.map_or(Val::NULL, |(from, to)| {
                Val::text(text[from..to].to_string())
            }))
        }
    }
}

fn string<'v>(values: &'v [Val<'_>], at: usize) -> Result<&'v str> {
    match values.get(at).map(Val::get) {
        Some(DatumRef::Text(t)) => Ok(t),
        other => Err(Error::internal(format!("{other:?} is no text"))),
    }
}

/// The argument at a place, or what it is if it is left out; not below `least`.
fn number(values: &[Val<'_>], at: usize, name: &str, absent: i32, least: i32) -> Result<i32> {
    let given = match values.get(at).map(Val::get) {
        None => return Ok(absent),
        Some(DatumRef::Int4(n)) => n,
        Some(other) => return Err(Error::internal(format!("{other:?} is no integer"))),
    };
    match given >= least {
        true => Ok(given),
        false => {
            let message = format!("invalid value for parameter \"{name}\": {given}");
            Err(Error::new("22023", message))
        }
    }
}

/// The flags at a place. `of` does not take `g`, in whose stead there is `instead`.
fn flags(values: &[Val<'_>], at: usize, of: &str, instead: Option<&str>) -> Result<Flags> {
    if values.len() <= at {
        return Ok(Flags::default());
    }
    let flags = Flags::parse(string(values, at)?)?;
    if !flags.everywhere {
        return Ok(flags);
    }
    let error = Error::new(
        "22023",
        format!("{of} does not support the \"global\" option"),
    );
    Err(match instead {
        Some(other) => error.hint(format!("Use the {other} function instead.")),
        None => error,
    })
}

/// The byte at which the search begins; `None` behind the end.
fn start(text: &str, values: &[Val<'_>], at: usize) -> Result<Option<usize>> {
    let start = number(values, at, "start", 1, 1)?;
    let skip = start as usize - 1;
    Ok(match text.char_indices().nth(skip) {
        Some((byte, _)) => Some(byte),
        None => (text.chars().count() == skip).then_some(text.len()),
    })
}

fn texts(items: Vec<Datum>) -> Result<Datum> {
    let element = Element::of(SqlType::Text).ok_or_else(|| Error::internal("arrays of text"))?;
    Ok(Datum::Array(array::list(element, &items)?))
}

fn groups(text: &str, found: &Found) -> Vec<Datum> {
    let part = |(from, to): (usize, usize)| Datum::Text(text[from..to].to_string());
    match found.groups.is_empty() {
        true => vec![part((found.start, found.end))],
        false => found
            .groups
            .iter()
            .map(|g| g.map_or(Datum::Null, part))
            .collect(),
    }
}

fn first_match<'a>(text: &str, pattern: &str, values: &[Val<'_>]) -> Result<Val<'a>> {
    let flags = flags(values, 2, "regexp_match()", Some("regexp_matches"))?;
    Ok(match regex::all(text, pattern, flags, 0, 1)?.first() {
        Some(found) => Val::Own(texts(groups(text, found))?),
        None => Val::NULL,
    })
}

/// In two dimensions, a row for each match.
fn all_matches<'a>(text: &str, pattern: &str, values: &[Val<'_>]) -> Result<Val<'a>> {
    let flags = match values.len() {
        3 => Flags::parse(string(values, 2)?)?,
        _ => Flags::default(),
    };
    let most = if flags.everywhere { usize::MAX } else { 1 };
    let found = regex::all(text, pattern, flags, 0, most)?;
    let rows: Vec<Vec<Datum>> = found.iter().map(|f| groups(text, f)).collect();
    let Some(first) = rows.first() else {
        return Ok(Val::Own(texts(Vec::new())?));
    };
    let length = |n: usize| i32::try_from(n).map_err(|_| array::too_large());
    let dimensions = [length(rows.len())?, length(first.len())?]
        .map(|length| block::array::Dimension { length, lower: 1 });
    let element = Element::of(SqlType::Text).ok_or_else(|| Error::internal("arrays of text"))?;
    let all: Vec<Datum> = rows.into_iter().flatten().collect();
    Ok(Val::Own(Datum::Array(array::make(
        element,
        &dimensions,
        &all,
    )?)))
}

/// What stands between matches. Empty ones at either end, or right behind another, do not count.
fn split<'a>(text: &str, pattern: &str, values: &[Val<'_>]) -> Result<Val<'a>> {
    let flags = flags(values, 2, "regexp_split_to_array()", None)?;
    let (mut parts, mut from, mut last) = (Vec::new(), 0, 0);
    for found in regex::all(text, pattern, flags, 0, usize::MAX)? {
        if found.start < text.len() && found.end > last {
            parts.push(Datum::Text(text[from..found.start].to_string()));
            from = found.end;
        }
        last = found.end;
    }
    parts.push(Datum::Text(text[from..].to_string()));
    Ok(Val::Own(texts(parts)?))
}

/// The n-th match from the start on, or one of its groups.
fn nth_match(
    text: &str,
    pattern: &str,
    flags: Flags,
    values: &[Val<'_>],
    group_at: usize,
) -> Result<Option<(usize, usize)>> {
    let start = start(text, values, 2)?;
    let n = number(values, 3, "n", 1, 1)? as usize;
    let group = number(values, group_at, "subexpr", 0, 0)? as usize;
    let Some(start) = start else {
        return Ok(None);
    };
    let found = regex::all(text, pattern, flags, start, n)?;
    let Some(found) = found.get(n - 1) else {
        return Ok(None);
    };
    Ok(match group {
        0 => Some((found.start, found.end)),
        group => found.groups.get(group - 1).copied().flatten(),
    })
}

fn position<'a>(text: &str, pattern: &str, values: &[Val<'_>]) -> Result<Val<'a>> {
    start(text, values, 2)?;
    number(values, 3, "n", 1, 1)?;
    let end = number(values, 4, "endoption", 0, 0)?;
    if end > 1 {
        let message = format!("invalid value for parameter \"endoption\": {end}");
        return Err(Error::new("22023", message));
    }
    let flags = flags(values, 5, "regexp_instr()", None)?;
    let found = nth_match(text, pattern, flags, values, 6)?;
    let at = found.map(|(from, to)| if end == 1 { to } else { from });
    let characters = at.map_or(0, |at| text[..at].chars().count() + 1);
    Ok(Val::int4(i32::try_from(characters).unwrap_or(i32::MAX)))
}

fn replace_from<'a>(text: &str, pattern: &str, values: &[Val<'_>]) -> Result<Val<'a>> {
    let start = start(text, values, 3)?;
    let n = number(values, 4, "n", 1, 0)?;
    let flags = match values.len() {
        6 => Flags::parse(string(values, 5)?)?,
        _ => Flags::default(),
    };
    // Without a number of its own, the flag says whether all are.
    let which = match values.len() {
        4 if flags.everywhere => 0,
        _ => n as usize,
    };
    let Some(start) = start else {
        return Ok(Val::text(text.to_string()));
    };
    let with = string(values, 2)?;
    regex::replace_from(text, pattern, with, flags, start, which).map(Val::text)
}
