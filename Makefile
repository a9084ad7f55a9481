# Everything runs in .venv and sets itself up: a bare Debian 12 with make and Python 3.11 is enough.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH):/usr/sbin
export PYTHONDONTWRITEBYTECODE := 1

# Spark asks what this machine's own name resolves to, which on a fresh one may be nothing, unless it is told where it is.
export SPARK_LOCAL_IP ?= 127.0.0.1
NEEDS := packaging/ensure-packages
# Three processes, since tests of real processes mostly wait for clocks and disks; the tests of one file run in one of them, one after the other.
# Slow folders come first, so that all three end at the same time; with them ends the process of the hub's tests.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: trust-walk bench-start bench-fleet bench-hub-history demo-fleet mqtt-kills docs help venv demo test test-debian lint fmt unit slow slow-machine simulate failing-disk fuzz walkthrough bench bench-compare bench-hub hub-kills hub-wheel hub-cluster hub-cluster-kills hub-dag cuts storm soak damage upgrades power-loss appliance deb deb-emulated apt-repo image image-run reproducible clean packages

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

packages:  ## the Debian packages of `make test`; each other target installs its own
	@$(NEEDS) base test deb

venv: $(VENV)/.complete  ## .venv with Eyot, its hub and the tools of development
	@$(BIN)/python -m compileall -q wire serving store sync daemon cli fleet hub  # a start without bytecode takes a second longer

$(VENV)/.complete: pyproject.toml packaging/debian-packages.txt $(wildcard */eyot_*/*.pyx */eyot_*/*.px[di])
	@$(NEEDS) base
	test -x $(BIN)/python || python3 -m venv $(VENV)
	echo "Installing Eyot and its tools into $(VENV) (PySpark is large: this takes a few minutes the first time)"
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[hub,iceberg,dev]'
	# Spark looks for packages named pyspark_* in the folders of sys.path, where an editable install does not put them.
	echo "$(CURDIR)/hub" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/eyot-hub-editable.pth"
	touch $@

demo: venv  ## the whole story: offline leaf, power cut, link returns, hub complete, Spark tables
	@$(NEEDS) spark $(if $(findstring nats-server,$(DEMO)),nats)
	$(BIN)/python tests/story/play.py $(DEMO)

demo-fleet: venv  ## a hub enrols DEVICES (20): one is stolen, one gets a new disk, one is offline for three weeks of readings
	$(BIN)/python tests/story/fleet.py $(if $(DEVICES),--devices $(DEVICES))

# What a change of names and documents breaks; short enough to run before each commit.
HOUSE := $(addprefix tests/unit/test_,imports.py names.py stations.py decisions.py make_targets.py man.py pages.py quantities.py skips.py)

lint: venv  ## formatting, lint, types, import direction, names, stations, decisions, documents
	@$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q $(HOUSE)

fmt: venv  ## format and fix what can be fixed
	@$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test:  ## everything that CI runs, in processes side by side; PYTEST="tests/unit -k tls" for a part, in one
	@$(NEEDS) base
	$(NEEDS) test deb &
	packages=$$!
	make --no-print-directory venv
	wait $$packages
	if [ -n "$(PYTEST)" ]; then exec $(BIN)/python -m pytest -q $(PYTEST); fi
	mkdir -p build
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) --durations=40 tests/interop tests/offline_sync tests/unit \
		> build/test.log 2>&1 &
	others=$$!
	trap 'kill $$others 2>/dev/null || true' EXIT
	failed=0
	make --no-print-directory lint
	$(BIN)/python -m pytest -q --durations=20 tests/hub tests/appliance tests/fleet || failed=1
	wait $$others || failed=1
	trap - EXIT
	cat build/test.log
	exit $$failed

test-debian:  ## the same in a bare root of RELEASE (bookworm, trixie), on its own Python; ARGS="tests/unit -k tls" for some; as root
	@$(NEEDS) bare
	packaging/bare-debian $(or $(RELEASE),bookworm) $(if $(ARGS),bash -c "make packages venv && .venv/bin/python -m pytest -q $(ARGS)",make test)

unit: venv  ## the fast tests: no server of another kind, no Spark, nothing marked slow
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not slow" tests/unit tests/offline_sync $(PYTEST)

slow: venv  ## what `make unit` leaves out of the same folders
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m slow tests/unit tests/offline_sync $(PYTEST)

slow-machine: venv  ## the tests of the store and of JetStream where every search goes on in later turns, as on a slow machine
	@$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) --slow-machine -m "not quick_machine" tests/unit/store tests/unit/jetstream $(PYTEST)

simulate: venv  ## fleets in a simulator: SEED=7 replays one seed, SEEDS=1000 runs so many; PLANT=name plants a bug; ARGS=--whole
	@$(BIN)/python tests/offline_sync/simulate.py --seed $(or $(SEED),1) --seeds $(or $(SEEDS),$(if $(SEED),1,1000)) --plant "$(PLANT)" $(ARGS)

failing-disk: venv  ## streams, consumers and MQTT sessions while commits fail at random: SEEDS (1000), SEED=n to begin with another
	@cd tests
	export PYTHONPATH=.
	for of in jetstream mqtt; do
	    python support/$$of/failing_disk.py --seeds $(or $(SEEDS),$(if $(SEED),1,1000)) $(if $(SEED),--seed $(SEED))
	done

fuzz: venv  ## throw anything at scanners, fan-out and whole connections for FUZZ_SECONDS (600); SEED=n to repeat
	@$(BIN)/python tests/fuzz/run.py --seconds $(or $(FUZZ_SECONDS),600) $(if $(SEED),--seed $(SEED))

walkthrough: venv  ## NATS' own walk-through of leaf nodes with JetStream, with Eyot and nats-server as hub and leaf
	@$(NEEDS) nats
	$(BIN)/python tests/support/links/walkthrough.py $(WALK)

bench: venv  ## Eyot against nats-server and mosquitto in the same run; the tables go to docs/measured.md; BENCH=core|durable|leaf|idle|growth|weak|mqtt: one group
	@$(NEEDS) base nats net mqtt
	$(BIN)/python tests/bench/run.py $(BENCH)

bench-compare: venv  ## this checkout beside that of BASE=ref in alternating rounds; fails for what is more than 5 % slower; BENCH=core: one group
	@$(NEEDS) base net
	$(BIN)/python tests/bench/compare.py $(or $(BASE),origin/main) $(BENCH)

bench-start: venv  ## how soon the daemon is READY with 10 GB stored, after a stop and after a SIGKILL; START="--gigabytes N --rounds N --nice -20"
	@$(BIN)/python tests/bench/ready_large.py $(START)

bench-hub: venv  ## the Spark hub's rates
	@$(NEEDS) nats spark
	$(BIN)/python tests/bench/hub.py $(BENCH)

bench-hub-history: venv  ## what rounds of the hub cost in a lake that keeps more and more rows; BENCH="--rows N,M,... --format iceberg"
	$(BIN)/python tests/bench/hub_history.py $(BENCH)

bench-fleet: venv  ## thousands of light leaf nodes at a cluster of three nats-servers; FLEET="--devices 1000 3000 10000 --seconds 240"; takes half an hour
	@$(BIN)/python tests/bench/fleet_links.py $(FLEET)

trust-walk: venv  ## nsc and eyot trust in turn on one store, against nats-server and eyotd; NSC=PATH of an nsc
	@$(BIN)/python tests/support/trust/trust_walk.py --nsc $(or $(NSC),nsc)

hub-kills: venv  ## SIGKILL for drivers and workers of every job and of the sink, in both formats, KILLS (20) each; SEED=n to repeat
	@$(NEEDS) nats spark
	$(BIN)/python tests/support/hub/ingest_kills.py --kills $(or $(KILLS),20) --packed --restarts $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/ingest_kills.py --kills $(or $(KILLS),20) --format iceberg $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/table_kills.py --kills $(or $(KILLS),20) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/table_kills.py --kills $(or $(KILLS),20) --format iceberg $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/lake_kills.py --beside --kills $(or $(KILLS),20) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/lake_kills.py --beside --kills $(or $(KILLS),20) --format iceberg $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/sink_kills.py --kills $(or $(KILLS),20) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/support/hub/sink_kills.py --kills $(or $(KILLS),20) --speculation $(if $(SEED),--seed $(SEED))

hub-wheel:  ## the hub's jobs from the built wheel in a fresh virtual environment, under spark-submit
	@$(NEEDS) base nats spark
	tests/support/hub/submit-wheel

hub-cluster: venv  ## the hub's jobs on a standalone cluster of Spark: packed environment, times; CLUSTER="--rounds N"
	@$(NEEDS) nats spark
	$(BIN)/python tests/support/hub/cluster.py $(CLUSTER)

hub-cluster-kills: venv  ## workers, driver, master, broker and object storage killed under each job of such a cluster; CLUSTER="--format FORMAT"
	@$(NEEDS) nats spark
	$(BIN)/python tests/support/hub/cluster_kills.py $(CLUSTER)

hub-dag: venv  ## the example for Airflow, loaded by Airflow itself in a virtual environment of its own
	$(BIN)/python tests/support/hub/dag.py

cuts: venv  ## 200 random cuts of a leaf link and kills of its ends, clients on both sides; CUTS="--cuts N --hub KIND --seed N"
	@$(NEEDS) nats
	$(BIN)/python tests/support/links/link_cuts.py $(CUTS)

storm: venv  ## a hub and a leaf node of each kind, 100 faults a run; RUNS=14 SEED=n STORM="--faults N --pairs HUB:LEAF,..."
	@$(NEEDS) nats
	$(BIN)/python tests/support/links/storm.py $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) $(STORM)

soak: venv  ## power cuts and SIGKILL under load, for an hour; SOAK="--seconds N" for another time
	@cd tests
	PYTHONPATH=. python support/store/power_cuts.py $(or $(SOAK),--seconds 1800)
	EYOT_SIGKILL_ROUNDS=3000 python -m pytest -q unit/store/test_sigkill.py
	python support/mqtt/kills.py --kills 2000

mqtt-kills: venv  ## SIGKILL of the daemon under MQTT load of QoS 1 and 2, KILLS (2000) times; SEED=n to repeat
	@cd tests
	python support/mqtt/kills.py --kills $(or $(KILLS),2000) $(if $(SEED),--seed $(SEED))

damage: venv  ## damaged pages, files and journals: 10,000 cases; DAMAGE="--cases N --seed N", --case N replays one
	@cd tests
	PYTHONPATH=. python support/store/damages.py $(DAMAGE)

upgrades: venv  ## the package by dpkg to the next version and back, killed on the way, over a store in use; ROUNDS (3); every cut of dpkg; as root
	@$(NEEDS) deb
	packaging/build-deb
	$(BIN)/python tests/support/devices/upgrades.py --rounds $(or $(ROUNDS),3) $(if $(SEED),--seed $(SEED))
	EYOT_CUTS_EVERY=1 $(BIN)/python -m pytest tests/appliance/test_package_cuts.py

power-loss: venv  ## power loss of a virtual machine that runs eyotd, ROUNDS (5) times; POWER_LOSS=--encrypted
	@$(NEEDS) power
	$(BIN)/python tests/power/power_loss.py --rounds $(or $(ROUNDS),5) $(POWER_LOSS)

appliance: venv  ## a machine of RELEASE (bookworm, trixie) that boots systemd: install, upgrade, power cuts, purge; STEPS="watchdog reload"; as root
	@$(NEEDS) deb machines
	packaging/build-for $(or $(RELEASE),bookworm)
	$(BIN)/python tests/machines/appliance.py --release $(or $(RELEASE),bookworm) $(if $(SEED),--seed $(SEED)) $(STEPS)

docs: venv  ## the documentation site in build/site; broken links and anchors fail
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	echo "build/site/index.html"

deb:  ## dist/eyot_VERSION_ARCH.deb, carrying its own Python packages; ARCH=arm64 on another machine
	@$(NEEDS) deb $(if $(ARCH),deb-$(ARCH))
	packaging/build-deb

deb-emulated: venv  ## build the package of ARCH (arm64) and run it as a leaf node under qemu-user, with kills, beside a hub of this machine
	@$(NEEDS) deb deb-$(or $(ARCH),arm64) emulated
	ARCH=$(or $(ARCH),arm64) packaging/build-deb
	$(BIN)/python tests/support/links/emulated_leaf.py --arch $(or $(ARCH),arm64)

apt-repo:  ## add dist/*.deb to a signed apt repository in REPO (dist/apt); KEY=FILE with the secret key, DEBS="..." for other packages
	@$(NEEDS) apt-repo
	KEY="$(KEY)" packaging/apt-repo $(or $(REPO),dist/apt) $(or $(DEBS),dist/*.deb)

image:  ## dist/eyot_VERSION_ARCH.oci.tar, an OCI image of the package in dist, made without a daemon
	@$(NEEDS) image
	packaging/image

image-run: venv  ## unpack the image in dist and run it as its configuration says, with a kill and a fresh container; as root
	@$(NEEDS) image-run
	$(BIN)/python tests/support/devices/image.py

reproducible:  ## build the package twice, in different folders and environments, and compare the checksums
	@$(NEEDS) deb
	packaging/compare-builds

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
