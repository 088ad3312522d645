//! Whether an instance starts with its parameters, as far as that can be told beforehand. A start
//! asks this, and ALTER SYSTEM SET asks it for the next one.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use server::ServerConfig;
use sql::params::Instance;

use crate::{Failure, settings};

/// Parameters that name files beside the database or elsewhere.
const FILES: [&str; 3] = ["ssl_cert_file", "ssl_key_file", "ssl_ca_file"];

/// The check of later starts of this instance.
pub fn check(
    dir: &Path,
    instance: u16,
) -> impl Fn(&Instance) -> Result<(), String> + Send + Sync + use<> {
    let dir = PathBuf::from(dir);
    move |params| check_parameters(params, &dir, instance).map_err(|Failure(why)| why)
}

fn check_parameters(params: &Instance, dir: &Path, instance: u16) -> Result<(), Failure> {
    settings::instance_cpus(params)?;
    let server = server_config(params)?;
    server.check().map_err(|e| Failure(e.to_string()))?;
    let listen = server.address.ip();
    settings::engine_config(params, dir, instance, listen)?;
    settings::console(params)?;
    check_superuser(params)?;
    check_files(params, dir)
}

/// Refuses files that are not there, and a mirror that no start of this database has filled.
fn check_files(params: &Instance, dir: &Path) -> Result<(), Failure> {
    for name in FILES {
        let file = params.text(name);
        if !file.is_empty() {
            std::fs::File::open(dir.join(&file))
                .map_err(|e| Failure(format!("{name} \"{file}\": {e}")))?;
        }
    }
    let mirror = params.text("redo_mirror");
    if !mirror.is_empty() && !Path::new(&mirror).join("redo").is_dir() {
        return Err(Failure(format!(
            "redo_mirror \"{mirror}\": it has no directory redo, and none is made for a database \
             that exists"
        )));
    }
    Ok(())
}

/// Refuses a superuser without a name.
pub fn check_superuser(params: &Instance) -> Result<(), Failure> {
    match params.text("superuser").trim().is_empty() {
        true => Err(Failure("superuser: a name is wanted".into())),
        false => Ok(()),
    }
}

/// What the server in front of the database is started with.
pub fn server_config(params: &sql::params::Instance) -> Result<ServerConfig, Failure> {
    let address = params.text("listen_addresses");
    let ip: IpAddr = match address.as_str() {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        _ => address
            .parse()
            .map_err(|e| Failure(format!("listen_addresses \"{address}\": {e}")))?,
    };
    Ok(ServerConfig {
        address: SocketAddr::new(ip, params.int("port") as u16),
        rules: settings::rules(params)?,
        max_sessions: params.int("max_sessions") as usize,
        startup_timeout: Duration::from_secs(params.int("startup_timeout") as u64),
        client_poll: Duration::from_micros(params.int("client_poll") as u64),
    })
}
