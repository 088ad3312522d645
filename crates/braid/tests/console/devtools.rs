//! A headless Chromium, driven over a pipe by the DevTools protocol: messages of JSON, each with a
//! zero byte behind it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::scratch::Scratch;
use testkit::waiting;

/// A page of a browser.
pub struct Browser {
    process: Child,
    to: File,
    from: BufReader<File>,
    /// What has come besides answers.
    events: VecDeque<Value>,
    asked: u64,
    session: String,
    _files: Scratch,
}

/// The programs that Chromium is called by.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

impl Browser {
    /// None where there is no Chromium.
    pub fn open() -> Option<Browser> {
        let is_there = |name: &&&str| {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {name}")])
                .stdout(Stdio::null())
                .status();
            found.is_ok_and(|status| status.success())
        };
        let Some(program) = PROGRAMS.iter().find(is_there) else {
            println!("not tried: there is no Chromium");
            return None;
        };
        let files = Scratch::new("console-browser");
        let [to, from] = ["to", "from"].map(|name| files.join(name));
        for pipe in [&to, &from] {
            let made = Command::new("mkfifo").arg(pipe).status();
            assert!(made.expect("mkfifo").success());
        }
        // The browser reads commands from file descriptor 3 and writes to 4. A shell opens them:
        // each opening waits for the other end.
        let script = "exec \"$0\" \"$@\" 3<\"$BRAID_TO\" 4>\"$BRAID_FROM\"";
        let process = Command::new("sh")
            .args(["-c", script, program])
            .args(["--headless=new", "--no-sandbox", "--remote-debugging-pipe"])
            .args([
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
            ])
            .arg(format!("--user-data-dir={}", files.text("profile")))
            .env("BRAID_TO", &to)
            .env("BRAID_FROM", &from)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut browser = Browser {
            to: File::options().write(true).open(&to).expect("the pipe"),
            from: BufReader::new(File::open(&from).expect("the pipe")),
            process,
            events: VecDeque::new(),
            asked: 0,
            session: String::new(),
            _files: files,
        };
        let made = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.ask(
            "Target.attachToTarget",
            json!({"targetId": made["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_string();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command, and gives its result.
    #[track_caller]
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = Value::String(self.session.clone());
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let said = self.read();
            if said["id"] == self.asked {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].clone();
            }
            self.events.push_back(said);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from
            .read_until(0, &mut bytes)
            .expect("the browser speaks");
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let said = self.ask("Runtime.evaluate", asked);
        let thrown = &said["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        said["result"]["value"].clone()
    }

    /// Waits until an expression in the page is true.
    #[track_caller]
    pub fn until(&mut self, expression: &str) {
        waiting::answer(
            || match self.value(expression) == true {
                true => Ok(()),
                false => Err(self.value("document.body.innerText")),
            },
            |shown| format!("{expression} is not so in {shown}"),
        );
    }

    /// Presses a key, as a person does.
    pub fn press(&mut self, key: &str) {
        let text = match key.chars().count() {
            1 => key,
            _ if key == "Enter" => "\r",
            _ => "",
        };
        let down = json!({"type": "keyDown", "key": key, "text": text});
        self.ask("Input.dispatchKeyEvent", down);
        self.ask(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key}),
        );
    }

    /// Types a text into what has the focus.
    pub fn types(&mut self, text: &str) {
        self.ask("Input.insertText", json!({"text": text}));
    }

    /// Has the page so many pixels.
    pub fn size(&mut self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// Writes a picture of the whole page.
    pub fn picture(&mut self, to: &Path) {
        let height = self.value("document.documentElement.scrollHeight");
        let width = self.value("innerWidth");
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let asked = json!({"format": "png", "clip": clip, "captureBeyondViewport": true});
        let said = self.ask("Page.captureScreenshot", asked);
        let bytes = decoded(said["data"].as_str().expect("a picture"));
        std::fs::write(to, bytes).expect("a file");
    }

    /// What went wrong in the page so far: exceptions, errors that were logged, and what the policy
    /// of the pages has refused. Answers that are errors are logged, too: those that begin with
    /// `expected` are left out.
    pub fn complaints(&mut self, expected: &str) -> Vec<String> {
        // What was sent before this answer has come.
        self.value("1");
        let events = self.events.drain(..);
        let told = events.filter_map(|event| match event["method"].as_str()? {
            "Runtime.exceptionThrown" => Some(event["params"].to_string()),
            "Log.entryAdded" => {
                let entry = &event["params"]["entry"];
                let text = entry["text"].as_str().unwrap_or_default();
                let is_wrong = entry["level"] == "error" || entry["level"] == "warning";
                (is_wrong && (expected.is_empty() || !text.contains(expected)))
                    .then(|| text.to_string())
            }
            _ => None,
        });
        told.collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes that a text of base 64 stands for.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut bits, mut have) = (Vec::new(), 0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        bits = bits << 6 | u32::from(digit(c));
        have += 6;
        if have >= 8 {
            have -= 8;
            bytes.push((bits >> have) as u8);
        }
    }
    bytes
}
