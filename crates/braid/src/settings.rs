//! From flags and files to the parameters and the configuration of an instance.

use std::path::{Path, PathBuf};

use sql::params::{AUTO_FILE, CONFIG_FILE, Context, Instance, PARAMS, Source};

use crate::Failure;
use crate::cli::SettingArgs;

/// Port of instance k is this plus k, unless said otherwise.
const BASE_PORT: u16 = 5500;

/// Gathers the parameters of an instance from `braid.toml`, ALTER SYSTEM SET and flags.
pub fn parameters(args: &SettingArgs, instance: u16) -> Result<Instance, Failure> {
    let dir = &args.data.data;
    let params = Instance::new(Some(dir));
    load_config_file(&params, args)?;
    params.load_auto_file()?;
    let flag = |name: &str, value: Option<String>, flag: &str| match value {
        Some(value) => params.set(name, &value, Source::CommandLine, flag),
        None => Ok(()),
    };
    flag(
        "listen_addresses",
        args.listen.map(|a| a.to_string()),
        "--listen",
    )?;
    flag("port", args.port.map(|p| p.to_string()), "--port")?;
    flag(
        "buffer_cache_size",
        args.buffer_cache.clone(),
        "--buffer-cache",
    )?;
    let mirror = args
        .redo_mirror
        .as_ref()
        .map(|path| path_text(path))
        .transpose()?;
    flag("redo_mirror", mirror, "--redo-mirror")?;
    for setting in &args.set {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure(format!("--set {setting}: wanted NAME=VALUE")))?;
        params.set(name.trim(), value, Source::CommandLine, "--set")?;
    }
    let port = sql::params::find("port").map_or(Source::Default, |port| params.source(port));
    if port == Source::Default {
        params.state("port", (BASE_PORT + instance).to_string());
    }
    params.state("instance_number", instance.to_string());
    params.state("max_connections", params.int("max_sessions").to_string());
    Ok(params)
}

fn path_text(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_string)
        .ok_or_else(|| Failure(format!("{}: the path is not valid UTF-8", path.display())))
}

/// Reads `braid.toml`; a file named by a flag must exist.
fn load_config_file(params: &Instance, args: &SettingArgs) -> Result<(), Failure> {
    let path = args
        .config
        .clone()
        .unwrap_or_else(|| args.data.data.join(CONFIG_FILE));
    let place = path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && args.config.is_none() => {
            return Ok(());
        }
        Err(e) => return Err(Failure(format!("cannot read {place}: {e}"))),
    };
    let table: toml::Table = text.parse().map_err(|e| Failure(format!("{place}: {e}")))?;
    for (name, value) in table {
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(switch) => switch.to_string(),
            // Unknown names are told first: a table is most likely a misplaced heading.
            _ if sql::params::find(&name).is_none() => {
                return Err(Failure(format!(
                    "{place}: there is no parameter \"{name}\""
                )));
            }
            _ => {
                return Err(Failure(format!(
                    "{place}: parameter \"{name}\" takes one value"
                )));
            }
        };
        params.set(&name, &value, Source::ConfigFile, &place)?;
    }
    Ok(())
}

/// What the engine needs of the parameters.
pub fn engine_config(params: &Instance, dir: &Path, instance: u16) -> engine::Config {
    let bytes = |name| params.int(name) as u64;
    let mirror = params.text("redo_mirror");
    engine::Config {
        instance,
        buffer_bytes: bytes("buffer_cache_size"),
        redo_file_bytes: bytes("redo_file_size"),
        redo_files: bytes("redo_files") as u32,
        redo_mirror: (!mirror.is_empty()).then(|| PathBuf::from(mirror)),
        undo_cap_bytes: bytes("undo_cap"),
        recovery_target_bytes: bytes("recovery_target"),
        preallocate_bytes: bytes("preallocate_size"),
        max_sessions: bytes("max_sessions") as u32,
        ..engine::Config::new(dir)
    }
}

/// Leaves a `braid.toml` that lists every parameter with its default, commented out, if there is none.
pub fn write_template(dir: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = match std::fs::File::create_new(dir.join(CONFIG_FILE)) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    };
    writeln!(
        file,
        "# Parameters of this database's instances. ALTER SYSTEM SET ({AUTO_FILE}) and flags override them."
    )?;
    for param in PARAMS.iter().filter(|p| p.context == Context::Start) {
        let value = param.show(param.default);
        writeln!(
            file,
            "\n# {}\n# {} = {}",
            param.description,
            param.name,
            toml::Value::String(value)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DataArgs;

    fn arguments(dir: &Path) -> SettingArgs {
        SettingArgs {
            data: DataArgs {
                data: dir.to_path_buf(),
            },
            config: None,
            listen: None,
            port: None,
            buffer_cache: None,
            redo_mirror: None,
            set: Vec::new(),
        }
    }

    #[test]
    fn files_and_flags_come_together() {
        let dir = std::env::temp_dir().join(format!("braid-settings-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write_template(&dir).unwrap();
        let mut args = arguments(&dir);
        assert_eq!(parameters(&args, 3).map(|p| p.int("port")).ok(), Some(5503));
        std::fs::write(
            dir.join(CONFIG_FILE),
            "redo_files = 3\nbuffer_cache_size = \"1GB\"\njit = true\nport = 7000\n",
        )
        .unwrap();
        args.buffer_cache = Some("32MB".into());
        args.set = vec!["max_sessions=7".into()];
        let params = parameters(&args, 1).ok().unwrap();
        let config = engine_config(&params, &dir, 1);
        assert_eq!(
            (config.redo_files, config.buffer_bytes, config.max_sessions),
            (3, 32 << 20, 7)
        );
        assert_eq!(
            (params.int("port"), params.text("max_connections")),
            (7000, "7".to_string())
        );
        for (text, culprit) in [
            ("bufer = 1", "\"bufer\""),
            ("[x]\ny = 1", "\"x\""),
            ("redo_files = 1", "valid range"),
            ("a = ", "TOML"),
        ] {
            std::fs::write(dir.join(CONFIG_FILE), text).unwrap();
            let Err(Failure(message)) = parameters(&args, 1) else {
                panic!("{text} was taken")
            };
            assert!(
                message.contains(culprit) && message.contains(CONFIG_FILE),
                "{message}"
            );
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
