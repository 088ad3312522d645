//! A session that listens: what it waits for is its client, or notifications.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sql::Error;

use crate::backend;
use crate::bell::Bell;
use crate::connection::{Input, InputEnd, Output};
use crate::session::{End, Session};

impl Session<'_> {
    /// Waits for the client's next messages, and tells it meanwhile of what it listens to.
    pub(crate) fn receive_listening(
        &mut self,
        input: &mut Input,
        limit: Option<Duration>,
        output: &mut Output,
    ) -> Result<Result<(), InputEnd>, End> {
        let bell = match &self.bell {
            Some(bell) => bell.clone(),
            None => match Bell::new() {
                Ok(bell) => self.bell.insert(Arc::new(bell)).clone(),
                Err(e) => {
                    let message = format!("could not wait for notifications: {e}");
                    self.tell_fatal(&Error::new("53000", message), output);
                    return Err(End::Told);
                }
            },
        };
        self.sql.ring_with(bell.clone());
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            self.tell_notifications(output);
            output.flush().map_err(|_| End::Client)?;
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            match input.receive_or_ring(&bell, left) {
                Err(InputEnd::Rung) => {}
                received => return Ok(received),
            }
        }
    }

    /// Tells the client what has come of what it listens to, if it is in no transaction.
    pub(crate) fn tell_notifications(&mut self, output: &mut Output) {
        if !self.sql.may_be_notified() {
            return;
        }
        let encoding = self.sql.client_encoding();
        for n in self.sql.take_notifications() {
            backend::notification_response(&mut output.buffer, &n, encoding);
        }
    }
}
