//! `braid tkprof`: adds up SQL trace files by statement.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;

use sqltrace::{Options, Profile};

use crate::Failure;
use crate::cli::{TkprofArgs, YesNo};

pub fn run(args: &TkprofArgs) -> Result<ExitCode, Failure> {
    let mut profile = Profile::new(Options {
        sort: args.sort.clone(),
        separate: args.aggregate == YesNo::No,
        print: args.print,
        skip_damaged: args.skip_damaged,
    });
    for path in &args.files {
        let name = path.display();
        let read = File::open(path)
            .map_err(sqltrace::Error::from)
            .and_then(|file| profile.add(&name.to_string(), BufReader::new(file)));
        read.map_err(|e| match e {
            sqltrace::Error::Damaged { .. } => Failure(format!(
                "{name}, {e}; --skip-damaged leaves such lines out and names them"
            )),
            e => Failure(format!("{name}: {e}")),
        })?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match profile.report(&mut out).and_then(|()| out.flush()) {
        // A pager that was quit has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        printed => Ok(printed.map(|()| ExitCode::SUCCESS)?),
    }
}
