
INSERT INTO gpunode_inventory (id, name) VALUES (1, 'fleet');
INSERT INTO gpunode_host (id, inventory_id, name, first, seen, judged)
  VALUES (1, 1, 'gpu-1', '2026-01-14 00:00:00', '2026-01-14 00:10:00', '2026-01-14 00:10:00');
INSERT INTO gpunode_finding (id, host_id, component, what, code, class, actual, desired, begun, last, since, told_by)
  VALUES (1, 1, 'driver', 'loaded module', 'driver.loaded-module', 'drift', '570.10', '580.95.05',
          '2026-01-14 00:00:00', '2026-01-14 00:10:00', '2026-01-14 00:00:00', 'drift');
SELECT 1
