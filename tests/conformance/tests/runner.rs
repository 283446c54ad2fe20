//! The runner tells right from wrong.

use serde_json::{Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};
use turnwheel_conformance::{Options, Report, Verdict, check, run_folder};

fn recorded(name: &str) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.json"));
    let text = fs::read_to_string(path).expect("the scenario exists");
    serde_json::from_str(&text).expect("the scenario is JSON")
}

fn verdict(scenario: &Json) -> Verdict {
    let name = scenario["name"].as_str().expect("a scenario has a name");
    check(name, &scenario.to_string(), None)
}

/// The lines of a failure.
fn failure(scenario: &Json) -> String {
    match verdict(scenario) {
        Verdict::Failed(lines) => lines.join("\n"),
        Verdict::Passed => panic!("{} passed", scenario["name"]),
    }
}

#[test]
fn a_recorded_scenario_passes() {
    assert_eq!(verdict(&recorded("tool-single")), Verdict::Passed);
}

#[test]
fn a_wrong_expectation_fails_with_its_path() {
    let mut scenario = recorded("tool-single");
    scenario["expect"]["agents"]["a1"]["log"][1]["data"]["turn"] = json!(7);
    assert_eq!(failure(&scenario), "  agents.a1.log[1].data.turn: expected 7, got 1");
}

#[test]
fn every_part_of_the_expectation_is_compared() {
    let parts = ["/live", "/agents/a1/status", "/agents/a1/header", "/agents/a1/pending", "/agents/a1/work"];
    let lists = ["history", "log", "notices", "requests", "tools"].map(|part| format!("/agents/a1/{part}"));
    let marks = ["/errors".to_owned(), "/steps".into(), "/steps/1/agents/a1/notices".into()];
    for pointer in parts.map(str::to_owned).into_iter().chain(lists).chain(marks) {
        let mut scenario = recorded("tool-single");
        *scenario["expect"].pointer_mut(&pointer).expect("the part is recorded") = json!(["something else"]);
        assert!(failure(&scenario).contains("something else"), "{pointer} is not compared");
    }
}

#[test]
fn a_missing_part_is_not_the_same_as_null() {
    let mut scenario = recorded("tool-single");
    scenario["expect"]["agents"]["a1"]["extra"] = Json::Null;
    assert_eq!(failure(&scenario), "  agents.a1.extra: expected null, got nothing");
}

#[test]
fn unknown_fields_fail_wherever_they_stand() {
    let places = ["", "/steps/0", "/tools/0", "/model/0", "/model/0/calls/0"];
    for place in places {
        let mut scenario = recorded("tool-single");
        scenario.pointer_mut(place).expect("the place exists")["surprise"] = json!(1);
        assert!(failure(&scenario).contains("surprise"), "an unknown field in {place:?} is accepted");
    }
    let mut scenario = recorded("prestep-append");
    scenario["on"][0]["do"]["surprise"] = json!(1);
    assert!(failure(&scenario).contains("surprise"));
    let mut scenario = recorded("tool-single");
    scenario["loop"] = json!({ "turnBudget": { "surprise": 1 } });
    assert!(failure(&scenario).contains("surprise"));
}

#[test]
fn unknown_names_fail() {
    let mut action = recorded("tool-single");
    action["steps"][0]["act"] = json!("teleport");
    assert!(failure(&action).contains("unknown action `teleport`"));
    let mut event = recorded("prestep-append");
    event["on"][0]["event"] = json!("agent/sneezed");
    assert!(failure(&event).contains("unknown event"));
    let mut tag = recorded("tool-single");
    tag["needs"] = json!(["telepathy"]);
    assert!(failure(&tag).contains("unknown feature tag"));
}

/// What the additions of section 13 say is looked at: without them the same scenarios come out otherwise.
#[test]
fn additions_of_our_own_have_an_effect() {
    let own = |name: &str| -> Json {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios-own").join(format!("{name}.json"));
        serde_json::from_str(&fs::read_to_string(path).expect("the scenario exists")).expect("the scenario is JSON")
    };
    let mut once = own("d-13-second-next-is-refused");
    once["on"][0]["do"]["nextTwice"] = json!(false);
    assert!(failure(&once).contains("listener step"));
    let mut kept = own("d-14-undefined-members-are-absent");
    kept["on"][0]["do"]["undefined"] = json!([]);
    assert!(failure(&kept).contains("maxTokens"));
    let mut allowed = own("d-06-refused-start-leaves-idle");
    allowed["steps"][0]["count"] = json!(0);
    assert!(failure(&allowed).contains("agents.a1.log"));
    let mut misplaced = own("d-12-every-stopping-listener-runs");
    misplaced["on"][0]["event"] = json!("agent/pre-step");
    assert!(failure(&misplaced).contains("turn-stopping only"));
    let mut free = own("d-19-healthy-holder-is-reported");
    free["steps"][0]["agents"] = json!(["b1"]);
    assert!(failure(&free).contains("errors"));
    let mut unregistered = own("d-21-event-types-of-plug-ins");
    unregistered["eventTypes"] = json!([]);
    assert!(failure(&unregistered).contains("errors"));
    let mut plain = own("d-22-lone-surrogates-are-repaired");
    plain["steps"][0]["text"] = json!("ab");
    assert!(failure(&plain).contains("agents.a1.log"));
    let mut patient = own("a-06-tool-timeout");
    patient["tools"][0]["timeoutMs"] = json!(1_000);
    assert!(failure(&patient).contains("agents.a1"));
    let mut attached = own("a-03-run-detached");
    attached["steps"][0]["detached"] = json!(false);
    assert!(failure(&attached).contains("agents.a1"));
    let mut answer = own("a-07-state-at-points");
    let asked = answer["expect"]["agents"]["a1"]["notices"].as_array_mut().expect("a list");
    asked.iter_mut().rfind(|notice| notice["event"] == "ask").expect("it is asked")["answer"]["turn"] = json!(99);
    assert!(failure(&answer).contains("answer.turn"));
}

#[test]
fn a_response_too_many_or_too_few_fails() {
    let mut more = recorded("tool-single");
    more["model"].as_array_mut().expect("a list").push(json!({ "text": "unasked" }));
    assert_eq!(failure(&more), "  1 scripted responses were not asked for");
    let mut fewer = recorded("tool-single");
    fewer["model"].as_array_mut().expect("a list").pop();
    assert!(failure(&fewer).starts_with("  the script of a1 has no response left"));
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// One scenario that passes and one that fails.
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        let good = recorded("tool-single");
        let mut bad = recorded("route-followup-idle");
        bad["expect"]["live"] = json!([]);
        folder.write("scenarios/tool-single.json", &good.to_string());
        folder.write("scenarios/route-followup-idle.json", &bad.to_string());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }

    fn run(&self, pending: Option<&str>) -> Report {
        let decisions = self.path("decisions");
        let options = Options {
            scenarios: self.path("scenarios"),
            is_whole_set: true,
            decisions: decisions.exists().then_some(decisions),
            pending: pending.map(|text| {
                self.write("pending.txt", text);
                self.path("pending.txt")
            }),
        };
        run_folder(&options).expect("the folder can be read")
    }
}

fn failed(report: &Report) -> Vec<(&str, &str)> {
    report.failed.iter().map(|(name, lines)| (name.as_str(), lines[0].trim())).collect()
}

#[test]
fn a_pending_scenario_that_fails_is_no_failure() {
    let report = Folder::new().run(Some("# known\nroute-followup-idle # soon\n"));
    assert_eq!((report.passed, failed(&report)), (1, vec![]));
    assert_eq!(report.pending, ["route-followup-idle"]);
}

#[test]
fn a_pending_scenario_that_passes_is_a_failure() {
    let report = Folder::new().run(Some("route-followup-idle\ntool-single\n"));
    assert_eq!(failed(&report), [("tool-single", "listed as pending but passes")]);
}

#[test]
fn a_pending_name_without_a_scenario_is_a_failure() {
    let report = Folder::new().run(Some("route-followup-idle\nno-such\n"));
    assert_eq!(failed(&report), [("no-such", "listed as pending but there is no such scenario")]);
}

#[test]
fn a_decision_replaces_the_recorded_result() {
    let folder = Folder::new();
    let expect = &recorded("route-followup-idle")["expect"];
    let decision = json!({ "decision": "D-99", "why": "to see it", "expect": expect });
    folder.write("decisions/route-followup-idle.json", &decision.to_string());
    let report = folder.run(None);
    assert_eq!((report.passed, failed(&report)), (2, vec![]));
}
