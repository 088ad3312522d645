//! The settings of an instance as flags: read, passed on to another process, and those of one laid
//! over those of another.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{self, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_DATA, number};

/// The directory of the database.
#[derive(Args, Clone)]
pub struct DataArgs {
    /// Database directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA)]
    pub data: PathBuf,
}

impl Default for DataArgs {
    fn default() -> DataArgs {
        DataArgs {
            data: DEFAULT_DATA.into(),
        }
    }
}

/// The settings of an instance. A flag overrides ALTER SYSTEM SET, which overrides braid.toml.
#[derive(Args, Clone, Serialize, Deserialize)]
pub struct SettingArgs {
    #[command(flatten)]
    // Whoever reads settings knows in which database's directory they lie.
    #[serde(skip)]
    pub data: DataArgs,
    /// Parameter file [default: DIR/braid.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on for clients; any other than loopback needs --set
    /// trusted_clients=NETWORKS
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Port of the first instance; each further one has the next [default: 5500 + instance]
    #[arg(long, value_parser = number(0..=u16::MAX))]
    pub port: Option<u16>,
    /// Address at which the other instances reach this one [default: loopback]; any other needs
    /// braid certificates
    #[arg(long, value_name = "ADDRESS")]
    pub interconnect_address: Option<IpAddr>,
    /// Port of the first instance for the others; each further one has the next [default: 6500 +
    /// instance; any free one if --port is given]
    #[arg(long, value_parser = number(0..=u16::MAX))]
    pub interconnect_port: Option<u16>,
    /// Addresses of other instances, used instead of those in the control file
    #[arg(long, value_name = "K=ADDRESS:PORT,...")]
    pub peers: Option<String>,
    /// Memory for buffered blocks, such as 512MB or 4GB
    #[arg(long, value_name = "SIZE")]
    pub buffer_cache: Option<String>,
    /// Directory for a second member of each redo file
    #[arg(long, value_name = "DIR")]
    pub redo_mirror: Option<PathBuf>,
    /// Any other parameter; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

impl SettingArgs {
    /// These settings as flags of an `instance` command.
    pub fn as_flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec!["--data".into(), self.data.data.clone().into()];
        let mut add = |flag: &str, value: Option<OsString>| {
            if let Some(value) = value {
                flags.extend([flag.into(), value]);
            }
        };
        add("--config", self.config.clone().map(Into::into));
        add("--listen", self.listen.map(|a| a.to_string().into()));
        add("--port", self.port.map(|p| p.to_string().into()));
        add(
            "--interconnect-port",
            self.interconnect_port.map(|p| p.to_string().into()),
        );
        add(
            "--interconnect-address",
            self.interconnect_address.map(|a| a.to_string().into()),
        );
        add("--peers", self.peers.clone().map(Into::into));
        add("--buffer-cache", self.buffer_cache.clone().map(Into::into));
        add("--redo-mirror", self.redo_mirror.clone().map(Into::into));
        for setting in &self.set {
            add("--set", Some(setting.into()));
        }
        flags
    }

    /// These settings with paths that are right in any working directory.
    pub fn in_any_directory(&self) -> io::Result<SettingArgs> {
        let absolute = |path: &Option<PathBuf>| path.as_deref().map(path::absolute).transpose();
        Ok(SettingArgs {
            config: absolute(&self.config)?,
            redo_mirror: absolute(&self.redo_mirror)?,
            ..self.clone()
        })
    }

    /// These settings where `own` says nothing else. The directory is this one's.
    pub fn with(&self, own: &SettingArgs) -> SettingArgs {
        let own = own.clone();
        let base = self.clone();
        SettingArgs {
            data: base.data,
            config: own.config.or(base.config),
            listen: own.listen.or(base.listen),
            port: own.port.or(base.port),
            interconnect_address: own.interconnect_address.or(base.interconnect_address),
            interconnect_port: own.interconnect_port.or(base.interconnect_port),
            peers: own.peers.or(base.peers),
            buffer_cache: own.buffer_cache.or(base.buffer_cache),
            redo_mirror: own.redo_mirror.or(base.redo_mirror),
            // Of a parameter that is given twice, the last value holds.
            set: [base.set, own.set].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn settings_survive_being_passed_on() {
        let line = [
            "braid",
            "up",
            "--data",
            "/db",
            "--buffer-cache",
            "1GB",
            "--set",
            "redo_files=3",
            "--listen",
            "127.0.0.1",
            "--interconnect-address",
            "127.0.0.2",
        ];
        let Command::Up(up) = Cli::parse_from(line).command else {
            panic!()
        };
        let again = ["braid", "instance"]
            .map(OsString::from)
            .into_iter()
            .chain(up.settings.as_flags());
        let Command::Instance(instance) = Cli::parse_from(again).command else {
            panic!()
        };
        assert_eq!(instance.settings.as_flags(), up.settings.as_flags());
    }

    #[test]
    fn an_instances_own_settings_go_before_the_guards() {
        let settings = |line: &[&str]| match Cli::parse_from(line).command {
            Command::Up(up) => up.settings,
            Command::Start(start) => start.settings,
            _ => panic!("neither up nor start: {line:?}"),
        };
        let guard = [
            "braid", "up", "--data", "/db", "--port", "7000", "--set", "a=1",
        ];
        let own = [
            "braid",
            "start",
            "2",
            "--buffer-cache",
            "1GB",
            "--set",
            "a=2",
        ];
        let both = settings(&guard).with(&settings(&own));
        let wanted = [
            "--data",
            "/db",
            "--port",
            "7000",
            "--buffer-cache",
            "1GB",
            "--set",
            "a=1",
            "--set",
            "a=2",
        ];
        assert_eq!(both.as_flags(), wanted.map(OsString::from));
    }
}
