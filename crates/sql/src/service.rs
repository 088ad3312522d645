//! Whether a client is let in by the name of database that it asks for: that of a service which runs here just now.

use block::InstanceId;
use engine::services::{self, Standing};

use crate::database::Database;
use crate::error::{Error, Result};

impl Database {
    /// An error is what the client is told. Where a service runs elsewhere it is 57P03, on which libpq goes to the next host of its list, as it does on a start or a stop.
    pub fn check_service(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        let name = services::of_database(name);
        let standing = engine
            .standing_of(name)
            .map_err(|e| Error::new("58030", e.to_string()))?;
        match standing {
            Standing::Runs => Ok(()),
            Standing::Elsewhere(on) => Err(Error::new(
                "57P03",
                format!(
                    "service \"{name}\" does not run on instance {} just now",
                    engine.instance()
                ),
            )
            .hint(where_it_runs(&on))),
            Standing::Unknown => Err(Error::new(
                "3D000",
                format!("database \"{name}\" does not exist"),
            )
            .hint(format!(
                "Connect to \"{}\", or to a service; braid service list names them.",
                services::DEFAULT
            ))),
        }
    }
}

/// What a client is told that says it is a user whom nobody knows.
pub fn no_role(name: &str) -> Error {
    Error::new("28000", format!("role \"{name}\" does not exist")).hint(
        "The first role has the name of the system's user who made the database; CREATE USER \
         makes others.",
    )
}

fn where_it_runs(on: &[InstanceId]) -> String {
    match on {
        [] => "None of its instances is up.".to_string(),
        [k] => format!("It runs on instance {}.", k.0),
        several => format!("It runs on instances {}.", services::list(several)),
    }
}
