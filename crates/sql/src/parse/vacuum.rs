//! VACUUM and ANALYZE with their options.

use sqlparser::tokenizer::Token;

use super::maintenance::table_list;
use super::tokens::Words;
use super::utility::Utility;
use crate::error::{Error, Result};

/// Most workers that PARALLEL may ask for.
const MOST_WORKERS: i64 = 1024;

/// The options of a statement, those included that change nothing here.
struct Options {
    analyze: bool,
    full: bool,
    skip_locked: bool,
    disable_page_skipping: bool,
    process_toast: bool,
    workers: i64,
}

impl Options {
    fn new() -> Options {
        Options {
            analyze: false,
            full: false,
            skip_locked: false,
            disable_page_skipping: false,
            process_toast: true,
            workers: 0,
        }
    }

    /// The list in parentheses, if there is one.
    fn read(&mut self, w: &mut Words<'_>, is_vacuum: bool) -> Result<()> {
        if !w.accept_token(&Token::LParen) {
            return Ok(());
        }
        loop {
            self.option(w, is_vacuum)?;
            if !w.accept_token(&Token::Comma) {
                return w.expect_token(&Token::RParen);
            }
        }
    }

    fn option(&mut self, w: &mut Words<'_>, is_vacuum: bool) -> Result<()> {
        let position = w.position();
        let name = w.name()?;
        match name.as_str() {
            "verbose" => drop(boolean(w, "verbose")?),
            "skip_locked" => self.skip_locked = boolean(w, "skip_locked")?,
            "analyze" | "analyse" if is_vacuum => self.analyze = boolean(w, "analyze")?,
            "full" if is_vacuum => self.full = boolean(w, "full")?,
            "freeze" | "truncate" if is_vacuum => drop(boolean(w, &name)?),
            "disable_page_skipping" if is_vacuum => {
                self.disable_page_skipping = boolean(w, &name)?;
            }
            "process_toast" if is_vacuum => self.process_toast = boolean(w, &name)?,
            "index_cleanup" if is_vacuum => {
                if !w.accept("auto") && !w.accept_string("auto") {
                    boolean(w, &name)?;
                }
            }
            "parallel" if is_vacuum => self.workers = workers(w, position)?,
            _ => {
                let statement = if is_vacuum { "VACUUM" } else { "ANALYZE" };
                let message = format!("unrecognized {statement} option \"{name}\"");
                return Err(Error::new("42601", message).at(position));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let message = match () {
            () if self.full && self.workers > 0 => "VACUUM FULL cannot be performed in parallel",
            () if self.full && self.disable_page_skipping => {
                "VACUUM option DISABLE_PAGE_SKIPPING cannot be used with FULL"
            }
            () if self.full && !self.process_toast => "PROCESS_TOAST required with VACUUM FULL",
            () => return Ok(()),
        };
        Err(Error::new("0A000", message))
    }
}

/// The value of a switch; without one it is on.
fn boolean(w: &mut Words<'_>, name: &str) -> Result<bool> {
    let value = match w.peek() {
        None | Some(Token::Comma | Token::RParen) => return Ok(true),
        Some(Token::Word(_)) => w.name()?,
        Some(Token::Number(..)) => w.integer()?.to_string(),
        _ => w.string()?,
    };
    match value.to_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => {
            let message = format!("{name} requires a Boolean value");
            Err(Error::new("42601", message))
        }
    }
}

fn workers(w: &mut Words<'_>, position: u32) -> Result<i64> {
    let message = match w.peek() {
        None | Some(Token::Comma | Token::RParen) => {
            "parallel option requires a value between 0 and 1024"
        }
        _ => {
            let workers = w.integer()?;
            if (0..=MOST_WORKERS).contains(&workers) {
                return Ok(workers);
            }
            "parallel workers for vacuum must be between 0 and 1024"
        }
    };
    Err(Error::new("42601", message).at(position))
}

/// After the word VACUUM.
pub fn vacuum(w: &mut Words<'_>) -> Result<Utility> {
    let mut options = Options::new();
    if w.peek() == Some(&Token::LParen) {
        options.read(w, true)?;
    } else {
        options.full = w.accept("full");
        w.accept("freeze");
        w.accept("verbose");
        options.analyze = w.accept("analyze") || w.accept("analyse");
    }
    options.check()?;
    Ok(Utility::Vacuum {
        tables: table_list(w)?,
        analyze: options.analyze,
        full: options.full,
        skip_locked: options.skip_locked,
    })
}

/// After the word ANALYZE.
pub fn analyze(w: &mut Words<'_>) -> Result<Utility> {
    let mut options = Options::new();
    if w.peek() == Some(&Token::LParen) {
        options.read(w, false)?;
    } else {
        w.accept("verbose");
    }
    Ok(Utility::Analyze {
        tables: table_list(w)?,
        skip_locked: options.skip_locked,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Command, statement};

    #[test]
    fn options_are_those_of_the_statement() {
        for sql in [
            "vacuum",
            "vacuum full freeze verbose analyze t (a), u",
            "vacuum (full 0, analyze on, index_cleanup auto, parallel 3, skip_locked) t",
            "analyze (verbose 'off', skip_locked true) t (a)",
        ] {
            let Ok(Command::Utility(_)) = statement(sql) else {
                panic!("{sql}");
            };
        }
        for (sql, state) in [
            ("vacuum (nosuch) t", "42601"),
            ("vacuum (verbose maybe) t", "42601"),
            ("vacuum (parallel 2000) t", "42601"),
            ("vacuum (full, parallel 2) t", "0A000"),
            ("vacuum verbose full t", "42601"),
            ("analyze (full) t", "42601"),
        ] {
            assert_eq!(statement(sql).expect_err(sql).sqlstate(), state, "{sql}");
        }
    }
}
