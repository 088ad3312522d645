//! What single lines of a trace file say. An error is the reason why a line is damaged.

use crate::record::*;
use crate::write::{SEPARATOR, SERVED};

const KEYWORDS: [&str; 9] = [
    "PARSE #", "EXEC #", "FETCH #", "CLOSE #", "WAIT #", "STAT #", "ERROR #", "XCTEND", "LOB",
];

pub(crate) fn begins_record(line: &str) -> bool {
    let more = [
        "PARSING IN CURSOR #",
        "PARSE ERROR #",
        "BINDS #",
        "***",
        SEPARATOR,
    ];
    KEYWORDS.iter().chain(&more).any(|k| line.starts_with(k))
}

/// A record of one line.
pub(crate) fn single(line: &str) -> Result<Record, String> {
    for kind in CallKind::ALL {
        if let Some(rest) = line
            .strip_prefix(kind.keyword())
            .and_then(|l| l.strip_prefix(" #"))
        {
            return call(kind, rest).map(Record::Call);
        }
    }
    if let Some(rest) = line.strip_prefix("WAIT #") {
        return wait(rest).map(Record::Wait);
    }
    if let Some(rest) = line.strip_prefix("STAT #") {
        return stat(rest).map(Record::Stat);
    }
    if let Some(rest) = line.strip_prefix("CLOSE #") {
        return close(rest).map(Record::Close);
    }
    if let Some(rest) = line.strip_prefix("ERROR #") {
        let (cursor, rest) = numbered(rest)?;
        let fields = Fields::of(rest, ' ')?;
        let (err, tim) = (fields.need("err")?, fields.need("tim")?);
        return Ok(Record::Error { cursor, err, tim });
    }
    if let Some(rest) = line.strip_prefix("XCTEND ") {
        let fields = Fields::of(rest, ',')?;
        return Ok(Record::TransactionEnd {
            rolled_back: fields.need::<u8>("rlbk")? != 0,
            read_only: fields.need::<u8>("rd_only")? != 0,
            tim: fields.need("tim")?,
        });
    }
    if line.starts_with("LOB") && line.contains(": type=") {
        return lob(line).map(Record::Lob);
    }
    if line.starts_with("***") {
        return match line
            .strip_prefix("*** ")
            .and_then(|l| l.strip_prefix(SERVED))
        {
            Some(rest) => served(rest).map(Record::Served),
            None => Ok(star(line)),
        };
    }
    if line.starts_with(SEPARATOR) {
        return Ok(Record::Separator);
    }
    Ok(header(line).unwrap_or_else(|| Record::Text(line.to_string())))
}

const HEADERS: [&str; 16] = [
    "Build label",
    "ORACLE_HOME",
    "System name",
    "Node name",
    "Release",
    "Version",
    "Machine",
    "CLID",
    "Instance name",
    "Instance number",
    "Database name",
    "Database unique name",
    "Database unique id",
    "Redo thread mounted by this instance",
    "Oracle process number",
    "Unix process pid",
];

fn header(line: &str) -> Option<Record> {
    let (name, value) = line.split_once(':')?;
    HEADERS.contains(&name).then(|| Record::Header {
        name: name.to_string(),
        value: value.trim().to_string(),
    })
}

fn star(line: &str) -> Record {
    let rest = line.trim_start_matches('*').trim_start();
    if looks_like_time(rest) {
        return Record::Time(rest.to_string());
    }
    let parts = || {
        let (name, rest) = rest.split_once(":(")?;
        let (value, time) = rest.rsplit_once(") ")?;
        (looks_like_time(time) && name.chars().all(|c| c.is_ascii_uppercase() || c == ' ')).then(
            || Record::Star {
                name: name.to_string(),
                value: value.to_string(),
                time: time.to_string(),
            },
        )
    };
    parts().unwrap_or_else(|| Record::Comment(rest.to_string()))
}

/// `2026-11-26T..`, and `2026-11-26 ..` of former versions.
fn looks_like_time(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() > 10
        && b[..10].iter().enumerate().all(|(i, c)| match i {
            4 | 7 => *c == b'-',
            _ => c.is_ascii_digit(),
        })
        && (b[10] == b'T' || b[10] == b' ')
}

/// The cursor's number, and what comes after it.
fn numbered(rest: &str) -> Result<(u64, &str), String> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let number = rest[..end]
        .parse()
        .map_err(|_| "a cursor has no number here".to_string())?;
    Ok((number, rest[end..].trim_start_matches(':')))
}

/// `name=value` pairs.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn of(text: &'a str, separator: char) -> Result<Fields<'a>, String> {
        let pieces = text
            .split(separator)
            .map(str::trim)
            .filter(|p| !p.is_empty());
        let pair = |piece: &'a str| {
            piece
                .split_once('=')
                .ok_or_else(|| format!("\"{piece}\" is no name=value"))
        };
        pieces.map(pair).collect::<Result<_, _>>().map(Fields)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let read = |v: &str| {
            v.parse()
                .map_err(|_| format!("{name}={v} is not a number that can stand here"))
        };
        self.text(name).map(read).transpose()
    }

    fn need<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        self.number(name)?
            .ok_or_else(|| format!("{name}= is missing; is the line cut off?"))
    }

    fn quoted(&self, name: &str) -> Result<String, String> {
        match self.text(name) {
            None => Ok(String::new()),
            Some(v) => v
                .strip_prefix('\'')
                .and_then(|v| v.strip_suffix('\''))
                .map(str::to_string)
                .ok_or_else(|| format!("{name}={v} is not in quotes; is the line cut off?")),
        }
    }
}

pub(crate) fn cursor(rest: &str) -> Result<Cursor, String> {
    let (number, rest) = numbered(rest)?;
    let f = Fields::of(rest, ' ')?;
    f.need::<u64>("len")?;
    Ok(Cursor {
        number,
        depth: f.need("dep")?,
        user: f.need("uid")?,
        command: f.need("oct")?,
        parsing_user: f.need("lid")?,
        tim: f.need("tim")?,
        hash: f.need("hv")?,
        address: f.quoted("ad")?,
        sql_id: f.quoted("sqlid")?,
        text: String::new(),
    })
}

pub(crate) fn parse_error(rest: &str) -> Result<ParseError, String> {
    let (cursor, rest) = numbered(rest)?;
    let f = Fields::of(rest, ' ')?;
    Ok(ParseError {
        cursor,
        depth: f.need("dep")?,
        user: f.need("uid")?,
        command: f.need("oct")?,
        parsing_user: f.need("lid")?,
        tim: f.need("tim")?,
        err: f.need("err")?,
        text: String::new(),
    })
}

fn counts(f: &Fields<'_>) -> Result<Counts, String> {
    Ok(Counts {
        cpu_us: f.need("c")?,
        elapsed_us: f.need("e")?,
        disk: f.need("p")?,
        query: f.need("cr")?,
        current: f.need("cu")?,
    })
}

fn call(kind: CallKind, rest: &str) -> Result<Call, String> {
    let (cursor, rest) = numbered(rest)?;
    let f = Fields::of(rest, ',')?;
    Ok(Call {
        kind,
        cursor,
        counts: counts(&f)?,
        misses: f.need("mis")?,
        rows: f.need("r")?,
        depth: f.need("dep")?,
        goal: f.need("og")?,
        // Former versions do not have it.
        plan_hash: f.number("plh")?.unwrap_or(0),
        tim: f.need("tim")?,
    })
}

fn close(rest: &str) -> Result<Close, String> {
    let (cursor, rest) = numbered(rest)?;
    let f = Fields::of(rest, ',')?;
    Ok(Close {
        cursor,
        cpu_us: f.need("c")?,
        elapsed_us: f.need("e")?,
        depth: f.need("dep")?,
        kind: f.need("type")?,
        tim: f.need("tim")?,
    })
}

fn lob(line: &str) -> Result<Lob, String> {
    let (kind, rest) = line.split_once(':').ok_or("no colon")?;
    let f = Fields::of(rest, ',')?;
    Ok(Lob {
        kind: kind.to_string(),
        of: f.text("type").unwrap_or_default().to_string(),
        bytes: f.need("bytes")?,
        counts: counts(&f)?,
        tim: f.need("tim")?,
    })
}

/// The text between `'` and what must follow it.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Result<(&'a str, &'a str), String> {
    let rest = text
        .trim_start()
        .strip_prefix(before)
        .ok_or_else(|| format!("{before} is missing"))?;
    let end = rest
        .find(after)
        .ok_or_else(|| format!("{after} is missing; is the line cut off?"))?;
    Ok((&rest[..end], &rest[end + after.len()..]))
}

/// Pairs of a name that may have blanks in it and a whole number.
fn spaced<T: std::str::FromStr>(text: &str) -> Result<Vec<(String, T)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest
            .split_once('=')
            .ok_or_else(|| format!("\"{rest}\" is no name=value; is the line cut off?"))?;
        let (value, after) = after.split_once(' ').unwrap_or((after, ""));
        let number = value
            .parse()
            .map_err(|_| format!("{name}={value} is not a number that can stand here"))?;
        pairs.push((name.to_string(), number));
        rest = after.trim_start();
    }
    Ok(pairs)
}

fn wait(rest: &str) -> Result<Wait, String> {
    let (cursor, rest) = numbered(rest)?;
    let (event, rest) = between(rest, "nam='", "' ela=")?;
    let rest = rest.trim_start();
    let (elapsed, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let elapsed_us = elapsed
        .parse()
        .map_err(|_| format!("ela= {elapsed} is not a number that can stand here"))?;
    let mut params: Vec<(String, i64)> = spaced(rest)?;
    let mut tail = |name: &str| match params.last() {
        Some((last, _)) if last == name => params.pop().map(|(_, v)| v),
        _ => None,
    };
    let tim = tail("tim");
    let object = tail("obj#");
    Ok(Wait {
        cursor,
        event: event.to_string(),
        elapsed_us,
        params,
        object,
        tim: tim
            .map(|t| u64::try_from(t).map_err(|_| format!("tim={t} is below zero")))
            .transpose()?,
    })
}

fn served(rest: &str) -> Result<Served, String> {
    let (cursor, rest) = numbered(rest)?;
    let (instance, rest) = between(rest, "instance=", " event='")?;
    let (event, rest) = between(&format!("={rest}"), "=", "' us=")
        .map(|(event, rest)| (event.to_string(), rest.to_string()))?;
    let (elapsed, rest) = rest.split_once(' ').unwrap_or((&rest, ""));
    Ok(Served {
        cursor,
        instance: instance
            .parse()
            .map_err(|_| format!("instance={instance}"))?,
        event,
        elapsed_us: elapsed.parse().map_err(|_| format!("us={elapsed}"))?,
        parts_ns: spaced(rest)?,
    })
}

fn stat(rest: &str) -> Result<Stat, String> {
    let (cursor, rest) = numbered(rest)?;
    let (fields, op) = rest
        .split_once(" op='")
        .ok_or("op= is missing; is the line cut off?")?;
    let f = Fields::of(fields, ' ')?;
    let op = op
        .trim_end()
        .strip_suffix('\'')
        .ok_or("the operation does not end with '; is the line cut off?")?;
    let (operation, times) = match op.rfind(" (cr=") {
        Some(at) => {
            let inner = op[at..].trim_start().trim_start_matches('(');
            let inner = inner
                .strip_suffix(')')
                .ok_or("the operation's times do not end")?;
            (&op[..at], Some(times(inner)?))
        }
        None => (op, None),
    };
    Ok(Stat {
        cursor,
        id: f.need("id")?,
        rows: f.need("cnt")?,
        parent: f.need("pid")?,
        position: f.need("pos")?,
        object: f.need("obj")?,
        operation: operation.to_string(),
        times,
    })
}

fn times(inner: &str) -> Result<OpTimes, String> {
    let inner = inner.replace(" us", "");
    let f = Fields::of(&inner, ' ')?;
    Ok(OpTimes {
        query: f.need("cr")?,
        // Versions write pr or r, and pw or w.
        disk: f.number("pr")?.or(f.number("r")?).unwrap_or(0),
        written: f.number("pw")?.or(f.number("w")?).unwrap_or(0),
        starts: f.number("str")?,
        time_us: f.need("time")?,
        cost: f.number("cost")?,
        size: f.number("size")?,
        rows: f.number("card")?,
    })
}
