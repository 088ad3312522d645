//! Writes records as the format has them.

use std::io::{self, Write};

use crate::record::*;

/// The line that ends a statement's text.
pub(crate) const END: &str = "END OF STMT";
pub(crate) const SEPARATOR: &str = "=====================";

/// A statement's text as it can stand in the file: a line of the text that would end it has a
/// blank before it.
pub fn line_end_of_statement(text: &str) -> String {
    let line = |line: &str| match line.starts_with(END) || line.starts_with("PARSING IN CURSOR #") {
        true => format!(" {line}"),
        false => line.to_string(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Text that stands within a line.
fn flat(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Writes one record with its line ends.
pub fn write(out: &mut dyn Write, record: &Record) -> io::Result<()> {
    match record {
        Record::Header { name, value } => writeln!(out, "{}: {}", flat(name), flat(value)),
        Record::Star { name, value, time } => {
            writeln!(out, "*** {}:({}) {}", flat(name), flat(value), flat(time))
        }
        Record::Time(time) => writeln!(out, "\n*** {}", flat(time)),
        Record::Comment(text) => writeln!(out, "*** {}", flat(text)),
        Record::Served(served) => self::served(out, served),
        Record::Cursor(cursor) => self::cursor(out, cursor),
        Record::Call(call) => self::call(out, call),
        Record::Close(c) => writeln!(
            out,
            "CLOSE #{}:c={},e={},dep={},type={},tim={}",
            c.cursor, c.cpu_us, c.elapsed_us, c.depth, c.kind, c.tim
        ),
        Record::Wait(wait) => self::wait(out, wait),
        Record::Stat(stat) => self::stat(out, stat),
        Record::Binds { cursor, binds } => self::binds(out, *cursor, binds),
        Record::TransactionEnd {
            rolled_back,
            read_only,
            tim,
        } => writeln!(
            out,
            "XCTEND rlbk={}, rd_only={}, tim={tim}",
            u8::from(*rolled_back),
            u8::from(*read_only)
        ),
        Record::Error { cursor, err, tim } => writeln!(out, "ERROR #{cursor}:err={err} tim={tim}"),
        Record::ParseError(e) => writeln!(
            out,
            "PARSE ERROR #{}:len={} dep={} uid={} oct={} lid={} tim={} err={}\n{}",
            e.cursor,
            e.text.len(),
            e.depth,
            e.user,
            e.command,
            e.parsing_user,
            e.tim,
            e.err,
            flat(&e.text)
        ),
        Record::Lob(l) => writeln!(
            out,
            "{}: type={},bytes={},{},tim={}",
            l.kind,
            l.of,
            l.bytes,
            counts(&l.counts),
            l.tim
        ),
        Record::Separator => writeln!(out, "{SEPARATOR}"),
        Record::Text(text) => writeln!(out, "{}", flat(text)),
    }
}

fn counts(c: &Counts) -> String {
    format!(
        "c={},e={},p={},cr={},cu={}",
        c.cpu_us, c.elapsed_us, c.disk, c.query, c.current
    )
}

fn cursor(out: &mut dyn Write, c: &Cursor) -> io::Result<()> {
    let text = line_end_of_statement(&c.text);
    writeln!(
        out,
        "PARSING IN CURSOR #{} len={} dep={} uid={} oct={} lid={} tim={} hv={} ad='{}' \
         sqlid='{}'\n{text}\n{END}",
        c.number,
        text.len(),
        c.depth,
        c.user,
        c.command,
        c.parsing_user,
        c.tim,
        c.hash,
        c.address,
        c.sql_id
    )
}

fn call(out: &mut dyn Write, c: &Call) -> io::Result<()> {
    writeln!(
        out,
        "{} #{}:{},mis={},r={},dep={},og={},plh={},tim={}",
        c.kind.keyword(),
        c.cursor,
        counts(&c.counts),
        c.misses,
        c.rows,
        c.depth,
        c.goal,
        c.plan_hash,
        c.tim
    )
}

fn wait(out: &mut dyn Write, w: &Wait) -> io::Result<()> {
    write!(
        out,
        "WAIT #{}: nam='{}' ela= {}",
        w.cursor,
        flat(&w.event),
        w.elapsed_us
    )?;
    for (name, value) in &w.params {
        write!(out, " {name}={value}")?;
    }
    if let Some(object) = w.object {
        write!(out, " obj#={object}")?;
    }
    if let Some(tim) = w.tim {
        write!(out, " tim={tim}")?;
    }
    writeln!(out)
}

/// The keyword of the line that takes a wait apart. Other readers look for `WAIT` anywhere.
pub(crate) const SERVED: &str = "SERVED #";

fn served(out: &mut dyn Write, s: &Served) -> io::Result<()> {
    write!(
        out,
        "*** {SERVED}{}: instance={} event='{}' us={}",
        s.cursor,
        s.instance,
        flat(&s.event),
        s.elapsed_us
    )?;
    for (name, ns) in &s.parts_ns {
        write!(out, " {name}={ns}")?;
    }
    writeln!(out)
}

fn stat(out: &mut dyn Write, s: &Stat) -> io::Result<()> {
    write!(
        out,
        "STAT #{} id={} cnt={} pid={} pos={} obj={} op='{}",
        s.cursor,
        s.id,
        s.rows,
        s.parent,
        s.position,
        s.object,
        flat(&s.operation)
    )?;
    if let Some(t) = &s.times {
        write!(out, " (cr={} pr={} pw={}", t.query, t.disk, t.written)?;
        if let Some(starts) = t.starts {
            write!(out, " str={starts}")?;
        }
        write!(out, " time={} us", t.time_us)?;
        for (name, value) in [("cost", t.cost), ("size", t.size), ("card", t.rows)] {
            if let Some(value) = value {
                write!(out, " {name}={value}")?;
            }
        }
        write!(out, ")")?;
    }
    writeln!(out, "'")
}

fn binds(out: &mut dyn Write, cursor: u64, binds: &[Bind]) -> io::Result<()> {
    writeln!(out, "BINDS #{cursor}:\n")?;
    for (at, bind) in binds.iter().enumerate() {
        writeln!(
            out,
            " Bind#{at}\n  oacdty={:02} mxl={:02}({:02}) mxlc=00 mal=00 scl=00 pre=00",
            bind.datatype, bind.length, bind.length
        )?;
        writeln!(
            out,
            "  oacflg=00 fl2=0000 frm=00 csi=00 siz={} off=0",
            bind.length
        )?;
        writeln!(
            out,
            "  kxsbbbfp=00000000  bln={:02}  avl={:02}  flg=05",
            bind.length, bind.length
        )?;
        if let Some(value) = &bind.value {
            // A line end would begin what may look like a record.
            let value = value.replace('\n', "\\n").replace('\r', "\\r");
            writeln!(out, "  value={value}")?;
        }
    }
    Ok(())
}
