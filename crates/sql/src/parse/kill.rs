//! `ALTER SYSTEM KILL SESSION` and `ALTER SYSTEM CANCEL SQL`: which session is meant.

use super::tokens::Words;
use super::utility::Utility;
use crate::error::{Error, Result};

/// A session as statements name it: `'sid,serial#'`, or `'sid,serial#,@instance'`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionName {
    pub sid: u32,
    pub serial: u32,
    /// None: of the instance that runs the statement.
    pub instance: Option<u16>,
}

/// What follows `ALTER SYSTEM KILL SESSION`.
pub fn kill_session(w: &mut Words<'_>) -> Result<Utility> {
    let session = SessionName::parse(&w.string()?)?;
    let immediate = w.accept("immediate");
    Ok(Utility::KillSession { session, immediate })
}

/// What follows `ALTER SYSTEM CANCEL SQL`.
pub fn cancel_sql(w: &mut Words<'_>) -> Result<Utility> {
    let session = SessionName::parse(&w.string()?)?;
    Ok(Utility::CancelSql(session))
}

impl SessionName {
    fn parse(text: &str) -> Result<SessionName> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (sid, serial, instance) = match parts[..] {
            [sid, serial] => (sid, serial, None),
            [sid, serial, instance] => (sid, serial, Some(instance)),
            _ => return Err(wrong(text)),
        };
        let number = |part: &str| part.parse().ok().filter(|n| *n > 0);
        let instance = match instance {
            None => None,
            Some(part) => {
                let number = part.strip_prefix('@').and_then(|n| n.trim().parse().ok());
                Some(number.filter(|n| *n > 0).ok_or_else(|| wrong(text))?)
            }
        };
        match (number(sid), number(serial)) {
            (Some(sid), Some(serial)) => Ok(SessionName {
                sid,
                serial,
                instance,
            }),
            _ => Err(wrong(text)),
        }
    }
}

fn wrong(text: &str) -> Error {
    Error::new("22023", format!("invalid session \"{text}\""))
        .hint("Write 'sid,serial#' or 'sid,serial#,@instance', with the numbers of gv$session.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_by_two_numbers_or_three() {
        let session = |instance| SessionName {
            sid: 12,
            serial: 345,
            instance,
        };
        let parsed = |text| SessionName::parse(text).ok();
        assert_eq!(parsed("12,345"), Some(session(None)));
        assert_eq!(parsed(" 12 , 345 , @ 2 "), Some(session(Some(2))));
        for wrong in [
            "",
            "12",
            "12,",
            "12,x",
            "12,345,2",
            "12,345,@",
            "12,345,@0",
            "0,1",
            "1,0",
            "1,2,@3,4",
            "-1,2",
            "1,2,@-1",
            "99999999999,1",
        ] {
            let error = SessionName::parse(wrong).expect_err(wrong);
            assert_eq!(error.sqlstate(), "22023");
        }
    }
}
