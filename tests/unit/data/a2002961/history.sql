BEGIN TRANSACTION;
CREATE TABLE gpunode_finding (
	id INTEGER NOT NULL, 
	host_id INTEGER NOT NULL, 
	component TEXT NOT NULL, 
	what TEXT NOT NULL, 
	code TEXT NOT NULL, 
	class TEXT NOT NULL, 
	actual TEXT, 
	desired TEXT, 
	cause TEXT, 
	remedy TEXT, 
	not_yet DATETIME, 
	begun DATETIME NOT NULL, 
	last DATETIME NOT NULL, 
	ended DATETIME, 
	ending TEXT, 
	since DATETIME NOT NULL, 
	last_good DATETIME, 
	told_by TEXT NOT NULL, 
	ended_by TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(host_id) REFERENCES gpunode_host (id) ON DELETE CASCADE
);
INSERT INTO "gpunode_finding" VALUES(1,2,'driver','module on disk','driver.module-on-disk','drift','580.95.05','580.105.08',NULL,'run deploys/gpu_node.py again',NULL,'2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000',NULL,NULL,'2026-11-27 20:00:00.000000',NULL,'drift',NULL);
INSERT INTO "gpunode_finding" VALUES(2,2,'driver','loaded module','driver.loaded-module','drift','580.95.05','580.105.08',NULL,'run deploys/gpu_node.py again',NULL,'2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000',NULL,NULL,'2026-11-27 20:00:00.000000',NULL,'drift',NULL);
CREATE TABLE gpunode_history_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT gpunode_history_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "gpunode_history_version" VALUES('0002');
CREATE TABLE gpunode_host (
	id INTEGER NOT NULL, 
	inventory_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	first DATETIME NOT NULL, 
	seen DATETIME NOT NULL, 
	answered DATETIME, 
	understood DATETIME, 
	judged DATETIME, 
	late DATETIME, 
	gone DATETIME, 
	PRIMARY KEY (id), 
	CONSTRAINT gpunode_host_name UNIQUE (inventory_id, name), 
	FOREIGN KEY(inventory_id) REFERENCES gpunode_inventory (id) ON DELETE CASCADE
);
INSERT INTO "gpunode_host" VALUES(1,1,'gpu-1','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000',NULL,NULL);
INSERT INTO "gpunode_host" VALUES(2,1,'gpu-2','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000','2026-11-27 20:00:00.000000',NULL,NULL);
CREATE TABLE gpunode_inventory (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, pruned DATETIME, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "gpunode_inventory" VALUES(1,'fleet',NULL);
CREATE TABLE gpunode_record (
	id INTEGER NOT NULL, 
	inventory_id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	command TEXT NOT NULL, 
	gpunode TEXT NOT NULL, 
	hosts INTEGER NOT NULL, 
	whole BOOLEAN NOT NULL, 
	exit_code INTEGER NOT NULL, 
	state TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(inventory_id) REFERENCES gpunode_inventory (id) ON DELETE CASCADE
);
INSERT INTO "gpunode_record" VALUES(1,1,'2026-11-27 20:00:00.000000','drift','0.1.0',2,1,2,NULL);
CREATE INDEX gpunode_finding_host ON gpunode_finding (host_id, ended);
CREATE INDEX gpunode_finding_begun ON gpunode_finding (begun);
CREATE INDEX gpunode_finding_ended ON gpunode_finding (ended);
CREATE INDEX gpunode_record_at ON gpunode_record (inventory_id, at);
COMMIT;
