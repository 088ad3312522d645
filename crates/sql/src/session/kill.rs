//! `ALTER SYSTEM KILL SESSION` and `ALTER SYSTEM CANCEL SQL`, which are for those who may call
//! `pg_terminate_backend` and `pg_cancel_backend`.

use std::time::Duration;

use super::SqlSession;
use crate::api::Tag;
use crate::error::{Error, Result};
use crate::orders::{Outcome, Target};
use crate::parse::kill::SessionName;

/// How long the end of a session is waited for; then it is marked to be ended, as Oracle has it.
const END_LIMIT: Duration = Duration::from_secs(60);

impl SqlSession {
    pub(super) fn kill_session(&mut self, session: &SessionName, immediate: bool) -> Result<Tag> {
        let (database, patience) = (self.core.database.clone(), self.core.settings.patience());
        let (target, by) = (self.target(session), self.core.authority());
        if target.is_own(&database) {
            return Err(Error::new("55000", "cannot kill current session"));
        }
        found(&target, database.end_session(target, by, patience)?)?;
        if !immediate && !database.await_end(target, END_LIMIT, patience)? {
            let message = format!("session \"{target}\" is marked to be ended");
            self.core.notice("WARNING", "01000", message);
        }
        Ok(Tag::Plain("ALTER SYSTEM"))
    }

    pub(super) fn cancel_sql(&mut self, session: &SessionName) -> Result<Tag> {
        let (database, patience) = (self.core.database.clone(), self.core.settings.patience());
        let (target, by) = (self.target(session), self.core.authority());
        found(&target, database.cancel_statement(target, by, patience)?)?;
        Ok(Tag::Plain("ALTER SYSTEM"))
    }

    fn target(&self, session: &SessionName) -> Target {
        let here = self.core.database.engine().instance();
        Target {
            instance: session.instance.unwrap_or(here),
            sid: session.sid,
            serial: Some(session.serial),
        }
    }
}

pub(super) fn found(target: &Target, outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Found => Ok(()),
        Outcome::NotFound => {
            let message = format!("session \"{target}\" does not exist");
            Err(Error::new("42704", message))
        }
        Outcome::Unknown(why) => {
            let message = format!(
                "instance {} did not say whether it has session \"{target}\"",
                target.instance
            );
            Err(Error::new("58000", message).detail(why))
        }
    }
}
